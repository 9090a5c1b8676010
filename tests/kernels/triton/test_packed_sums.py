"""Sums of two short integers in one register, which NVIDIA's assembler gets wrong, are two sums."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import triton

from fusewright.runtime.triton_compiler import without_packed_sums

PACKED = """\
	mov.b32 	%r40, -1;
	add.s16x2 	%r41, %r33, %r40;
	add.s16 	%rs1, %rs2, %rs3;
	@%p1 st.global.b16 [ %rd49 + 0 ], { %rs49 };
"""


def test_a_packed_sum_is_two_sums() -> None:
    lines = without_packed_sums(PACKED).splitlines()
    assert lines[:1] + lines[2:] == PACKED.splitlines()[:1] + PACKED.splitlines()[2:]
    assert lines[1].count("add.s16 ") == 2
    assert "mov.b32 {%low, %high}, %r33" in lines[1]
    assert "mov.b32 {%other_low, %other_high}, %r40" in lines[1]
    assert "mov.b32 %r41, {%low, %high}" in lines[1]


def test_other_assembly_stays_as_it_is() -> None:
    assembly = "\tadd.s32 \t%r1, %r2, %r3;\n\tcvt.rn.bf16x2.f32 \t%r4, %r5, %r6;\n"
    assert without_packed_sums(assembly) is assembly


HALF_USED = """\
.version 8.0
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 from, .param .u64 to)
{
	.reg .b64 %rd<6>;
	.reg .b32 %r<6>;
	.reg .b16 %rs<9>;
	ld.param.u64 %rd1, [from];
	ld.param.u64 %rd2, [to];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd3, %r1, 4;
	add.s64 %rd4, %rd1, %rd3;
	add.s64 %rd5, %rd2, %rd3;
	ld.global.u16 %rs1, [%rd4];
	ld.global.u16 %rs2, [%rd4+2];
	mov.u16 %rs3, 7;
	mov.b32 %r2, {%rs3, %rs1};
	mov.b32 %r3, {%rs2, %rs3};
	mov.b32 %r4, -1;
	add.s16x2 \t%r2, %r2, %r4;
	add.s16x2 \t%r3, %r3, %r4;
	mov.b32 {%rs4, %rs5}, %r2;
	mov.b32 {%rs6, %rs7}, %r3;
	st.global.u16 [%rd5], %rs5;
	st.global.u16 [%rd5+2], %rs6;
	ret;
}
"""
"""Two pairs, of each of which one half is stored."""


def test_machine_code_adds_the_constant(tmp_path: Path) -> None:
    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    assembly, code = tmp_path / "kernel.ptx", tmp_path / "kernel.cubin"
    assembly.write_text(without_packed_sums(HALF_USED))
    subprocess.run([tools / "ptxas", "-arch=sm_90a", assembly, "-o", code], check=True)
    listing = subprocess.run(
        [tools / "nvdisasm", "-c", code], check=True, capture_output=True, text=True
    ).stdout
    sums = re.findall(r"ADD\S* R\d+, R\d+, (-0x1|0xffffffff|0x0)", listing)
    assert len(sums) == 2, listing
    assert "0x0" not in sums, listing

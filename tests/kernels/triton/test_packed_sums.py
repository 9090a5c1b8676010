"""Sums of two short integers in one register, which NVIDIA's assembler gets wrong, are two sums."""

from __future__ import annotations

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

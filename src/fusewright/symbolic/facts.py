"""Known and assumed facts about the symbolic sizes of one compile.

A question about sizes is answered by proof where the ranges, factors and earlier facts allow one;
else by the sizes seen when compiling, and the answer becomes an assumption, to be guarded. What is
assumed makes later answers certain: an equality replaces one symbol by the other, a bound or a
divisor is kept with its symbol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from math import lcm
from typing import TYPE_CHECKING, TypeGuard

from fusewright.errors import DataDependent, Location
from fusewright.ir.index import Atom, Compound, Index, RealSymbol, SizeSymbol, Symbol, integer
from fusewright.ir.intervals import Bound
from fusewright.ir.proof import Given, proves, without_quotients
from fusewright.ir.relations import Relation, RelationKind, at_least, at_most, equal
from fusewright.ir.sizes import SizeFact, size_symbol
from fusewright.records import record
from fusewright.symbolic.real import Operand, evaluate, free_in_real
from fusewright.symbolic.relations import (
    All,
    Any,
    Condition,
    RealRelation,
    negation,
    rewrite,
)

if TYPE_CHECKING:
    import torch


@record
class Assumption:
    """A relation taken to hold, and the user's line that made it matter."""

    relation: Relation | RealRelation
    location: Location | None


class Required(DataDependent):
    """An operator works only where a condition holds, and that depends on data."""

    def __init__(self, condition: torch.SymBool) -> None:
        self.condition = condition
        super().__init__(f"it requires that {condition}, which depends on data")


class ShapeFacts:
    """The symbols of one compile. One thread."""

    def __init__(self, where: Callable[[], Location | None] = lambda: None) -> None:
        self.where = where
        """Gives the user's line that is being compiled."""

        self.hints: dict[str, float] = {}
        """The numbers seen when compiling, by symbol; a size that depends on data has none."""

        self.assumptions: list[Assumption] = []
        self.is_closed = False
        """Set when the guards are made: what would need another assumption is refused then."""

        self.of_layout = False
        """Set while a question only decides how results lie in memory, where sizes 0 and 1 do not
        matter: one that depends on data counts as larger then.
        """

        self.of_call = False
        """Set while a call of the program runs on fakes: what its operators expect of sizes that
        depend on data is required of the program.
        """

        self.version = 0
        """Counts the replacements of symbols: what was resolved since the last is so still."""

        self._replacements: dict[Symbol, Index] = {}
        self._given = Given()
        """The assumptions that do not follow from the ranges of the symbols."""

        self._sums: list[tuple[Index, Index]] = []
        """Sums of sizes that depend on data, with what each is known to be."""

        self._of_reals: set[Condition] = set()
        """The assumptions about real numbers."""

        self._count = 0

    # -- for other processes ----------------------------------------------------------------------

    def text(self, symbols: Iterable[Symbol]) -> str:
        """All that answers about sizes of these symbols depend on: where two texts are equal, all
        questions have equal answers, and lead to equal assumptions.
        """
        replaced = sorted(self._replacements.items(), key=lambda pair: pair[0].name)
        indices = [index for _, index in replaced]
        indices += [index for pair in self._sums for index in pair]
        indices += [relation.difference for relation in self._given.relations]
        concerned = {*symbols, *self._replacements, *(s for index in indices for s in index.free())}
        parts = (
            sorted(self.hints.items()),
            sorted(_symbol_text(symbol) for symbol in concerned),
            [(symbol.name, index.text) for symbol, index in replaced],
            [(relation.kind.value, relation.difference.text) for relation in self._given.relations],
            [(whole.text, total.text) for whole, total in self._sums],
            sorted(map(repr, self._of_reals)),
            (self._count, self.is_closed, self.of_layout),
        )
        return repr(parts)

    def assume_again(self, assumptions: Iterable[Assumption]) -> None:
        """Take over assumptions that facts of equal text were led to."""
        before = self.where
        try:
            for assumption in assumptions:
                self.where = partial(getattr, assumption, "location")
                self.assume(assumption.relation)
        finally:
            self.where = before

    # -- symbols ----------------------------------------------------------------------------------

    def size(self, hint: int, lower: Bound = 2, upper: Bound = None) -> Index:
        """A new size or other integer, which was `hint` when compiling."""
        symbol = size_symbol(self._name("s"), lower, upper)
        self.hints[symbol.name] = hint
        return symbol.index

    def real(self, hint: float) -> RealSymbol:
        """A new real number, which was `hint` when compiling."""
        symbol = RealSymbol(self._name("f"))
        self.hints[symbol.name] = hint
        return symbol

    def is_of_data(self, symbol: Symbol) -> bool:
        """Whether a symbol depends on data, so that nothing was seen for it when compiling."""
        return symbol.name not in self.hints

    def unknown_size(self, lower: Bound = 0, upper: Bound = None) -> Index:
        """A new size that depends on data."""
        return SizeSymbol(self._name("u"), lower, upper).index

    def _name(self, letter: str) -> str:
        self._count += 1
        return f"{letter}{self._count - 1}"

    def resolve(self, index: Index) -> Index:
        """`index` with all that is assumed about its symbols made use of."""
        if self._replacements:
            index = index.substitute(self._replacements)
        for whole, total in self._sums:
            if set(whole.terms) <= set(index.terms):
                index = index - whole + total
        return integer(1) if self._is_one(index) else index

    def _is_one(self, index: Index) -> bool:
        """Whether `index` is known to be 1 though it is no constant, as is `s0 // 2` where it was
        assumed to be, or where `s0` is 2 or 3. Who broadcasts or lays out looks for this number.
        """
        if index.is_constant or (index.lower or 0) > 1:
            return False
        relation = equal(index, 1)
        return self._given.states(relation) or proves(relation)

    def is_known(self, symbol: Symbol) -> bool:
        """Whether a symbol has turned out to stand for one number."""
        if isinstance(symbol, RealSymbol):
            return RealRelation("is", symbol, self.hints[symbol.name]) in self._of_reals
        return self.resolve(symbol.index).is_constant

    def hint(self, index: Index) -> int | None:
        """The value of `index` when compiling; None where it depends on data."""
        if index.is_constant:
            return index.constant
        try:
            return self.resolve(index).evaluate(self.hints)
        except KeyError:
            return None

    def size_facts(self, index: Index) -> tuple[SizeFact, ...]:
        """The facts about the symbols in `index`, sorted by name."""
        symbols = sorted(self.resolve(index).free(), key=lambda symbol: symbol.name)
        return tuple(
            SizeFact(symbol, self.hints.get(symbol.name, max(symbol.lower or 0, 2)))
            for symbol in symbols
        )

    # -- questions --------------------------------------------------------------------------------

    def prove(self, condition: Condition) -> bool | None:
        """Whether `condition` holds for all sizes allowed so far; None: for some, or unknown."""
        match condition:
            case bool():
                return condition
            case Relation():
                return self._given.decide(condition.rewritten(self.resolve))
            case RealRelation():
                return self._prove_of_reals(condition.rewritten(self.resolve))
            case All(terms):
                answers = [self.prove(term) for term in terms]
                return False if False in answers else None if None in answers else True
            case Any(terms):
                answers = [self.prove(term) for term in terms]
                return True if True in answers else None if None in answers else False

    def _prove_of_reals(self, relation: RealRelation) -> bool | None:
        if relation in self._of_reals:
            return True
        return False if relation.negation() in self._of_reals else relation.known()

    def decide(self, condition: Condition) -> bool:
        """Whether `condition` holds: proved, or as it was for the sizes seen, which is assumed from
        then on.

        DataDependent: it depends on data.
        """
        proved = self.prove(condition)
        if proved is not None:
            return proved
        answer = self._as_seen(condition)
        if answer is None and self.of_layout:
            answer = self._of_large_unknown(condition)
            if answer is not None:
                return answer
        if answer is None:
            raise DataDependent(f"whether {condition} depends on the values of a tensor")
        self.assume(condition if answer else negation(condition))
        return answer

    def decide_exactly(self, condition: Condition) -> bool:
        """`decide`, also where layouts are asked for: for what tells how many dimensions a result
        has, which a size that is not large may change.
        """
        before, self.of_layout = self.of_layout, False
        try:
            return self.decide(condition)
        finally:
            self.of_layout = before

    def decide_or(self, condition: Condition, default: bool) -> bool:
        """`decide`, or `default` where the answer depends on data."""
        try:
            return self.decide(condition)
        except DataDependent:
            return default

    def _of_large_unknown(self, condition: Condition) -> bool | None:
        """Whether `condition` holds where sizes that depend on data are large, and equal to no
        other size by chance; None where that does not tell.
        """
        if isinstance(condition, All | Any):
            answers = [self._of_large_unknown(term) for term in condition.terms]
            decisive = isinstance(condition, Any)
            return decisive if decisive in answers else None if None in answers else not decisive
        answer = self.prove(rewrite(condition, self._with_large_unknown))
        if not _is_equation(condition):
            return answer
        # A size that is a number where it is large, as min(1, u0) is 1, is another one elsewhere.
        by_chance = answer is None or condition.difference.constant
        return condition.kind is RelationKind.NOT_ZERO if by_chance else answer

    def _with_large_unknown(self, index: Index) -> Index:
        """`index` with each size that depends on data at least 2."""
        return index.substitute(
            {
                symbol: SizeSymbol(symbol.name, 2, symbol.upper, symbol.multiple).index
                for symbol in index.free()
                if self.is_of_data(symbol) and (symbol.lower or 0) < 2
            }
        )

    def _as_seen(self, condition: Condition) -> bool | None:
        match condition:
            case bool():
                return condition
            case Relation(_, difference):
                number = self.hint(difference)
                return None if number is None else condition.holds_at(number)
            case RealRelation():
                has_hints = all(symbol.name in self.hints for symbol in condition.free())
                return condition.holds(self.hints) if has_hints else None
            case All(terms):
                answers = [self._as_seen(term) for term in terms]
                return False if False in answers else None if None in answers else True
            case Any(terms):
                answers = [self._as_seen(term) for term in terms]
                return True if True in answers else None if None in answers else False

    def number(self, index: Index) -> int:
        """The value of `index`, which is assumed to stay so. DataDependent: it depends on data."""
        index = self.resolve(index)
        if index.is_constant:
            return index.constant
        value = self.hint(index)
        if value is None:
            raise DataDependent(f"the size {index} depends on the values of a tensor")
        self.assume(equal(index, value))
        return value

    def real_number(self, number: Operand) -> float:
        """The value of a real number, which is assumed to stay so: what it is computed from is."""
        for symbol in free_in_real(number):
            if isinstance(symbol, RealSymbol):
                self.assume(RealRelation("is", symbol, self.hints[symbol.name]))
            else:
                self.number(symbol.index)
        return evaluate(number, self.hints)

    def hint_of_real(self, number: Operand) -> float:
        """The value of a real number when compiling. DataDependent: it depends on data."""
        unknown = [symbol for symbol in free_in_real(number) if self.is_of_data(symbol)]
        if unknown:
            raise DataDependent(f"the number {number} depends on the values of a tensor")
        return evaluate(number, self.hints)

    # -- assumptions ------------------------------------------------------------------------------

    def assume(self, condition: Condition) -> None:
        """Take `condition` to hold from now on.

        DataDependent: it was found not to hold.
        """
        match condition:
            case bool():
                if not condition:
                    raise DataDependent("a condition on sizes does not hold")
            case All(terms):
                for term in terms:
                    self.assume(term)
            case Any(terms):
                holding = next((term for term in terms if self._as_seen(term)), None)
                if self.prove(condition) is None and holding is not None:
                    self.assume(holding)
            case Relation():
                self._assume(condition.rewritten(self.resolve))
            case RealRelation():
                self._assume_of_reals(condition.rewritten(self.resolve))

    def _note(self, relation: Relation | RealRelation, proved: bool | None) -> bool:
        """Have `relation` guarded, unless it is known to hold; whether that was news."""
        if proved:
            return False
        if proved is False:
            raise DataDependent(f"{relation} was assumed, but cannot hold")
        if self.is_closed:
            raise DataDependent(f"{relation} would have to be assumed after the guards were made")
        self.assumptions.append(Assumption(relation, self.where()))
        return True

    def _assume_of_reals(self, relation: RealRelation) -> None:
        if self._note(relation, self._prove_of_reals(relation)):
            self._of_reals.add(relation)

    def _assume(self, relation: Relation) -> None:
        if not self._note(relation, self._given.decide(relation)):
            return
        difference = relation.difference
        if relation.kind is RelationKind.ZERO:
            self._unify(difference)
            return
        self._given = self._given.also(relation)
        if relation.kind is RelationKind.NOT_NEGATIVE:
            self._narrow(difference)

    def _narrow(self, difference: Index) -> None:
        """Use `difference >= 0` where it bounds a single symbol."""
        match difference.terms:
            case ((coefficient, (Symbol() as symbol,)),) if coefficient > 0:
                self._refine(symbol, lower=-(difference.constant // coefficient))
            case ((coefficient, (Symbol() as symbol,)),):
                self._refine(symbol, upper=difference.constant // -coefficient)

    def _unify(self, difference: Index) -> None:
        """Use `difference == 0`: replace a symbol by what it equals, or note what divides it."""
        divisible = _divisible_symbol(difference)
        if divisible is not None:
            symbol, factor = divisible
            self._refine(symbol, multiple=lcm(symbol.multiple, factor))
            return
        if self._note_sum(difference):
            return
        for symbol in sorted(difference.free(), key=self._youth, reverse=True):
            rest = _solved(difference, symbol)
            if rest is None or self._is_found_later(symbol, rest):
                continue
            if rest.terms and not _covers(symbol, rest):
                self._hand_on(symbol, rest)
                rest = self.resolve(rest)
            self._replace(symbol, rest)
            return
        self._given = self._given.also(equal(difference, 0))
        self.version += 1
        self._confine(difference)

    def _confine(self, difference: Index) -> None:
        """Use `difference == 0` where it leaves few sizes: of `s == s // 2 + 1` only 2 or less."""
        whole, _ = without_quotients(difference)
        for symbol in difference.free():
            steps = [number for number, atoms in whole.terms if atoms == (symbol,)]
            if not steps:
                continue
            lower, upper = (
                (symbol.index * steps[0] - whole) * (1 if steps[0] > 0 else -1)
            ).bounds()
            if lower is not None and upper is not None:
                step = abs(steps[0])
                self._refine(symbol, lower=-(-lower // step), upper=upper // step)
                return

    def _note_sum(self, difference: Index) -> bool:
        """Use `difference == 0` where it tells a sum of several sizes that depend on data: none of
        them is replaced, as each is found out by itself. Whether it does.
        """
        parts = [Index((term,), 0) for term in difference.terms]
        of_data = [part for part in parts if any(map(self.is_of_data, part.free()))]
        if len(of_data) < 2 or (len(parts) == 2 and not difference.constant):
            return False
        whole = sum(of_data, integer(0))
        if of_data[0].terms[0][0] < 0:
            whole, difference = -whole, -difference
        self._sums.append((whole, whole - difference))
        self.version += 1
        return True

    def _is_found_later(self, symbol: Symbol, index: Index) -> bool:
        """Whether `index` depends on data and `symbol` does not: what is given with the arguments
        would wait for what is computed of them.
        """
        return not self.is_of_data(symbol) and any(map(self.is_of_data, index.free()))

    def _youth(self, symbol: Symbol) -> tuple[bool, int]:
        """Sizes that depend on data go before others, late ones before early ones."""
        return self.is_of_data(symbol), int(symbol.name[1:])

    def _hand_on(self, symbol: Symbol, rest: Index) -> None:
        """Note what is known of a symbol as known of what replaces it."""
        match rest.terms:
            case ((1, (Symbol() as other,)),) if not rest.constant:
                self._refine(other, symbol.lower, symbol.upper, symbol.multiple)
                return
        if symbol.lower is not None:
            self._given = self._given.also(at_least(rest, symbol.lower))
        if symbol.upper is not None:
            self._given = self._given.also(at_most(rest, symbol.upper))

    def _refine(
        self, symbol: Symbol, lower: Bound = None, upper: Bound = None, multiple: int = 1
    ) -> None:
        """Give a symbol narrower bounds, or one more divisor."""
        lowers = [bound for bound in (symbol.lower, lower) if bound is not None]
        uppers = [bound for bound in (symbol.upper, upper) if bound is not None]
        multiple = lcm(symbol.multiple, multiple)
        least = max(lowers, default=None)
        most = min(uppers, default=None)
        least = None if least is None else -(-least // multiple) * multiple
        most = None if most is None else most // multiple * multiple
        refined = SizeSymbol(symbol.name, least, most, multiple)
        if refined == symbol:
            return
        self._replace(
            symbol, integer(least) if least == most and least is not None else refined.index
        )

    def _replace(self, symbol: Symbol, index: Index) -> None:
        replacement = {symbol: index}
        self.version += 1
        self._replacements = {
            old: new.substitute(replacement) for old, new in self._replacements.items()
        } | replacement
        moved = dict.fromkeys(
            relation.rewritten(lambda index: index.substitute(replacement))
            for relation in self._given.relations
        )
        self._given = Given(relation for relation in moved if not proves(relation))


def _symbol_text(symbol: Symbol) -> str:
    """A symbol, with all that is stated of it."""
    stated = symbol.lower, symbol.upper, symbol.multiple
    return f"{type(symbol).__name__} {symbol.name} {stated}"


def _divisible_symbol(difference: Index) -> tuple[Symbol, int] | None:
    """`s` and `k` where `difference` is `s % k`."""
    match difference.terms:
        case ((1, (Compound(operator="%") as compound,)),) if not difference.constant:
            left, right = compound.left, compound.right
            match left.terms:
                case ((1, (Symbol() as symbol,)),) if not left.constant and right.is_constant:
                    return symbol, right.constant
    return None


def _is_equation(condition: Condition) -> TypeGuard[Relation]:
    return isinstance(condition, Relation) and condition.kind is not RelationKind.NOT_NEGATIVE


def _solved(difference: Index, symbol: Symbol) -> Index | None:
    """The value of `symbol` where `difference` is zero; None where it is no integer expression."""
    part, factor = _exact_part(difference, symbol)
    terms = [coefficient for coefficient, atoms in difference.terms if atoms == part]
    if len(terms) != 1 or abs(terms[0]) != 1:
        return None
    rest = difference - Index(((terms[0], part),), 0)
    if symbol in rest.free():
        return None
    return rest * -terms[0] * factor


def _exact_part(difference: Index, symbol: Symbol) -> tuple[tuple[Atom, ...], int]:
    """The factor of a term that is `symbol`, or a quotient of it that leaves no rest, and what it
    is multiplied by to be the symbol.
    """
    for _, atoms in difference.terms:
        match atoms:
            case (Compound(operator="//", left=left, right=right),):
                is_exact = right.is_constant and symbol.multiple % right.constant == 0
                if left == symbol.index and is_exact:
                    return atoms, right.constant
    return (symbol,), 1


def _covers(symbol: Symbol, index: Index) -> bool:
    """Whether the range of `index` lies in that of `symbol`."""
    lower = symbol.lower is None or (index.lower is not None and index.lower >= symbol.lower)
    upper = symbol.upper is None or (index.upper is not None and index.upper <= symbol.upper)
    return lower and upper and index.divisor % symbol.multiple == 0

import Bytes
import TestSupport
import Testing

@testable import Policy

/// Tests of the complete truth table, with NULL, errors, and questions for PostgreSQL with every possible answer.
@Suite(.within(minutes: 5)) struct TruthTests {
    /// Small expression. Each `asked` is a separate question.
    indirect enum Expression: Sendable {
        case value(Truth)
        case unary(Unary, Expression)
        case binary(Binary, Expression, Expression)
        case choice(Expression, Expression, Expression)

        enum Unary: CaseIterable { case not, isTrue, isFalse, isUnknown }
        enum Binary: CaseIterable { case all, any, coalesce }
    }

    private static let values: [Truth] = [.no, .unknown, .yes, .ask, .failed]
    private static let leaves = values.map { Expression.value($0) }

    private static let small: [Expression] =
        leaves + Expression.Unary.allCases.flatMap { kind in leaves.map { .unary(kind, $0) } }
        + Expression.Binary.allCases.flatMap { kind in
            leaves.flatMap { left in leaves.map { .binary(kind, left, $0) } }
        }

    private static let choices = leaves.flatMap { condition in
        leaves.flatMap { value in leaves.map { Expression.choice(condition, value, $0) } }
    }

    @Test func `nothing is decided that some answer of PostgreSQL contradicts`() throws {
        var count = 0
        for expression in Self.small + Self.choices {
            for whole in [expression] + Expression.Unary.allCases.map({ .unary($0, expression) }) {
                try Self.check(whole)
                count += 1
            }
        }
        for left in Self.small {
            for right in Self.small.prefix(50) {
                for kind in Expression.Binary.allCases { try Self.check(.binary(kind, left, right)) }
                try Self.check(.unary(.not, .binary(.all, left, right)))
                count += 4
            }
        }
        #expect(count > 20_000, "a test of nothing")
    }

    @Test func `nothing is asked that no answer could make true`() throws {
        for expression in Self.small + Self.choices where expression.outcomes.isDisjoint(with: [.yes]) {
            #expect(expression.asWritten.verdict([]) != .ask, "\(expression)")
        }
        #expect(Self.binary(.all, .unknown, .ask).asWritten.verdict([]) == .notYes)
        #expect(Self.binary(.all, .ask, .unknown).asWritten.verdict([]) == .notYes)
        #expect(Self.binary(.any, .unknown, .ask).asWritten.verdict([]) == .ask)
        #expect(Expression.unary(.not, Self.binary(.all, .unknown, .ask)).asWritten.verdict([]) == .ask)
        #expect(Expression.unary(.not, Self.binary(.any, .unknown, .ask)).asWritten.verdict([]) == .notYes)
    }

    @Test func `a filter that does not hold is not saved by a policy that is asked for`() throws {
        let columns = [ColumnFacts(name: "n", type: TypeFacts(oid: 23, name: "integer"), collation: .none)]
        let policy = Predicate(.constant(.ask), asker: 1, settings: .forTests)
        for text in ["n=neq.3", "n=not.eq.3", "n=not.in.(3,4)", "and=(n.neq.3,n.neq.4)", "n=gt.3"] {
            guard let filter = try Filter.parse(text, within: .init(bytes: 1000, conditions: 10, depth: 5)) else {
                continue
            }
            let check = try FilterCheck(filter, columns: columns, settings: .forTests)
            let predicate = Predicate.both(try Predicate(check, canonical: check.literals.map(\.text)), policy)
            #expect(predicate.verdict([.null]) == .notYes, "\(text)")
            #expect(predicate.filterVerdict([.null]) == .unknown, "\(text)")
            #expect(predicate.verdict([.text("5")]) == .ask, "\(text)")
            #expect(predicate.filterVerdict([.text("5")]) == .yes, "\(text)")
            #expect(predicate.verdict([.absent]) == .ask, "\(text)")
            #expect(predicate.filterVerdict([.absent]) == .ask, "\(text)")
        }
        #expect(Predicate.both(.always, policy).filterVerdict([]) == .yes)
    }

    private static func binary(_ kind: Expression.Binary, _ left: Truth, _ right: Truth) -> Expression {
        .binary(kind, .value(left), .value(right))
    }

    /// Checks the expression in three forms: as a predicate's program, as a simplified predicate, and as a term.
    private static func check(_ expression: Expression) throws {
        let outcomes = expression.outcomes
        for verdict in [
            expression.asWritten.verdict([]),
            Predicate(expression.simplified, asker: 1, settings: .forTests).verdict([]),
            Verdict(expression.term.truth),
        ] {
            let isRight =
                switch verdict {
                case .yes: outcomes == [.yes]
                case .no: outcomes.isDisjoint(with: [.yes])
                case .unknown, .notYes, .failed: outcomes.isDisjoint(with: [.yes])
                case .ask: true
                }
            try #require(isRight, "\(expression): \(verdict), though it may be \(outcomes)")
        }
        let truth = expression.term.truth
        for outcome in outcomes { try #require(truth.may(be: outcome), "\(expression): \(truth) is not \(outcome)") }
    }
}

extension TruthTests.Expression {
    private static func isBefore(_ left: Truth, _ right: Truth) -> Bool {
        let order: [Truth] = [.no, .failed, .unknown, .yes]
        return (order.firstIndex(of: left) ?? 0) < (order.firstIndex(of: right) ?? 0)
    }

    private static func negated(_ value: Truth) -> Truth { value == .yes ? .no : value == .no ? .yes : value }

    private static func all(_ left: Truth, _ right: Truth) -> Truth { isBefore(left, right) ? left : right }

    /// Results that are possible, depending on PostgreSQL's answers.
    var outcomes: Set<Truth> {
        switch self {
        case .value(.ask): [.no, .unknown, .yes, .failed]
        case .value(let value): [value]
        case .unary(.not, let part): Set(part.outcomes.map(Self.negated))
        case .unary(let kind, let part):
            Set(
                part.outcomes.map { value in
                    let wanted: Truth = kind == .isTrue ? .yes : kind == .isFalse ? .no : .unknown
                    return value == .failed ? .failed : value == wanted ? .yes : .no
                })
        case .binary(.all, let left, let right):
            Set(left.outcomes.flatMap { a in right.outcomes.map { Self.all(a, $0) } })
        case .binary(.any, let left, let right):
            Set(
                left.outcomes.flatMap { a in
                    right.outcomes.map { Self.negated(Self.all(Self.negated(a), Self.negated($0))) }
                })
        case .binary(.coalesce, let left, let right):
            Set(left.outcomes.flatMap { $0 == .unknown ? right.outcomes : [$0] })
        case .choice(let condition, let value, let otherwise):
            Set(
                condition.outcomes.flatMap { condition -> Set<Truth> in
                    switch condition {
                    case .yes: value.outcomes
                    case .failed: [.failed]
                    default: otherwise.outcomes
                    }
                })
        }
    }

    /// Predicate of the expression without any simplification.
    var asWritten: Predicate {
        // A constant alone has no program, so another part is added.
        Predicate(.all([node, .constant(.yes)]), asker: 1, settings: .forTests)
    }

    private var node: PredicateNode {
        switch self {
        case .value(let value): .constant(value)
        case .unary(.not, let part): .not(part.node)
        case .unary(.isTrue, let part): .isTrue(part.node)
        case .unary(.isFalse, let part): .isFalse(part.node)
        case .unary(.isUnknown, let part): .isUnknown(part.node)
        case .binary(.all, let left, let right): .all([left.node, right.node])
        case .binary(.any, let left, let right): .any([left.node, right.node])
        case .binary(.coalesce, let left, let right): .coalesce([left.node, right.node])
        case .choice(let condition, let value, let otherwise): .choice([condition.node, value.node, otherwise.node])
        }
    }

    var simplified: PredicateNode {
        switch self {
        case .value(let value): .constant(value)
        case .unary(.not, let part): .not(of: part.simplified)
        case .unary(.isTrue, let part): PredicateNode.isTrue(part.simplified).simplified
        case .unary(.isFalse, let part): PredicateNode.isFalse(part.simplified).simplified
        case .unary(.isUnknown, let part): PredicateNode.isUnknown(part.simplified).simplified
        case .binary(.all, let left, let right): .all(of: [left.simplified, right.simplified])
        case .binary(.any, let left, let right): .any(of: [left.simplified, right.simplified])
        case .binary(.coalesce, let left, let right):
            PredicateNode.coalesce([left.simplified, right.simplified]).simplified
        case .choice(let condition, let value, let otherwise):
            .choice(of: [(condition.simplified, value.simplified)], otherwise: otherwise.simplified)
        }
    }

    var term: Term {
        switch self {
        case .value(.no): .constant([UInt8(ascii: "f")], .boolean)
        case .value(.yes): .constant([UInt8(ascii: "t")], .boolean)
        case .value(.unknown): .constant(nil, .boolean)
        case .value(.failed): Function.failure
        case .value: .undecided
        case .unary(.not, let part): .not(part.term)
        case .unary(.isTrue, let part): .isTrue(part.term)
        case .unary(.isFalse, let part): .isFalse(part.term)
        case .unary(.isUnknown, let part): .isNull(part.term)
        case .binary(.all, let left, let right): .all([left.term, right.term])
        case .binary(.any, let left, let right): .any([left.term, right.term])
        case .binary(.coalesce, let left, let right): .coalesce([left.term, right.term])
        case .choice(let condition, let value, let otherwise):
            .choice([Term.Branch(when: condition.term, then: value.term)], otherwise: otherwise.term)
        }
    }
}

extension Term {
    fileprivate var truth: Truth {
        let row = RowImage(bytes: RawSpan(), places: [ColumnPlace]().span)
        return TermEvaluation.truth(self, row, maximumWork: .max)
    }
}

import Bytes
import TestSupport
import Testing

@testable import Policy

/// Tests of policies for one holder: their partial evaluation, and the predicates that result from it.
@Suite(.within(minutes: 5)) struct ResidualTests {
    private static let me = "8b2e8ba0-0000-4000-8000-000000000001"
    private static let other = "8b2e8ba0-0000-4000-8000-000000000002"

    @Test func `an owner's policy becomes one key and nothing else`() throws {
        let policy = Policies.equal(Policies.column(1, Policies.uuid), Policies.uid)
        let predicate = try Policies.predicate(policy, claims: #"{"sub": "\#(Self.me)", "role": "x"}"#)
        #expect(predicate.access == .anyOf([EqualityKey(slot: 1, form: .asIs, bytes: Array(Self.me.utf8))]))
        #expect(predicate.isDecidedByAccess)
        #expect(!predicate.mayAskPolicy)
        #expect(predicate.verdict([.absent, .text(Self.me)]) == .yes)
        #expect(predicate.verdict([.absent, .text(Self.other)]) == .no)
        #expect(predicate.verdict([.absent, .null]) == .unknown)
        #expect(predicate.verdict([.absent, .absent]) == .ask)
        let turned = Policies.equal(Policies.uid, Policies.column(1, Policies.uuid))
        let upper = #"{"sub": "{\#(Self.me.uppercased())}"}"#
        #expect(try Policies.predicate(turned, claims: upper) == predicate)
    }

    @Test(arguments: ["{}", #"{"sub": null}"#, "", #"{"sub": "nobody"}"#, #"{"sub": ""}"#, #"{"sub": {"a": 1}}"#])
    func `claims without a usable subject see nothing`(claims: String) throws {
        let policy = Policies.equal(Policies.column(1, Policies.uuid), Policies.uid)
        #expect(try Policies.predicate(policy, claims: claims) == .never)
        let negated = Term.not(policy)
        #expect(try Policies.predicate(negated, claims: claims) == .never)
    }

    @Test func `a failing cast of claims only counts where it decides`() throws {
        let owner = Policies.equal(Policies.column(1, Policies.uuid), Policies.uid)
        let policy = Term.any([.column(0, .boolean), owner])
        let predicate = try Policies.predicate(policy, claims: #"{"sub": "nobody"}"#)
        #expect(predicate.verdict([.text("t"), .null]) == .yes)
        #expect(predicate.verdict([.text("f"), .null]) == .failed)
        #expect(predicate.verdict([.null, .null]) == .failed)
        #expect(predicate.access == .anyOf([EqualityKey(slot: 0, form: .asIs, bytes: Array("t".utf8))]))
    }

    @Test func `what PostgreSQL has to say first is asked once and all together`() throws {
        let first = AskedTerm(sql: "one()", type: Policies.uuid, isBuiltIn: false)
        let second = AskedTerm(sql: "two()", type: .boolean, isBuiltIn: false)
        let policy = RowPolicy(
            .any([
                Policies.equal(Policies.column(1, Policies.uuid), .ofClaims(nil, first)), .ofClaims(nil, second),
                Policies.equal(Policies.column(2, Policies.uuid), .ofClaims(nil, first)),
            ]))
        guard case .needs(let needs) = policy.residual(claims: [], role: [], answers: [:]) else {
            Issue.record("nothing was asked")
            return
        }
        #expect(needs == [first, second])
        let answers: [AskedTerm: AskedAnswer] = [first: .value(Array(Self.me.utf8)), second: .failed]
        guard case .residual(let residual) = policy.residual(claims: [], role: [], answers: answers) else {
            Issue.record("asked again")
            return
        }
        let predicate = residual.predicate(keys: [], asker: 7, settings: .forTests)
        #expect(predicate.verdict([.null, .text(Self.other), .text(Self.me)]) == .yes)
        #expect(predicate.verdict([.null, .text(Self.other), .null]) == .failed)
        #expect(predicate.asker == nil)
    }

    @Test func `equal residuals are equal predicates in whatever order they were written`() throws {
        let a = Policies.equal(Policies.column(1, Policies.uuid), Policies.uid)
        let b = Policies.equal(Policies.column(2, Policies.uuid), Policies.uid)
        let c = Term.column(0, .boolean)
        let claims = #"{"sub": "\#(Self.me)"}"#
        let one = try Policies.predicate(.any([a, b, .any([c])]), claims: claims)
        let two = try Policies.predicate(.any([.any([c, b]), a, a]), claims: claims)
        #expect(one == two)
        #expect(try Policies.predicate(.all([a, b, c]), claims: claims) != one)
    }

    @Test func `only what may be asked knows its asker`() throws {
        let undecided = try Policies.predicate(.all([.column(0, .boolean), .undecided]), claims: "{}", asker: 3)
        #expect(undecided.asker == 3)
        #expect(undecided.verdict([.text("t")]) == .ask)
        #expect(undecided.verdict([.text("f")]) == .no)
        #expect(try Policies.predicate(.all([.column(0, .boolean), .undecided]), claims: "{}", asker: 4) != undecided)
        let whole = try Policies.predicate(.undecided, claims: "{}", asker: 3)
        #expect(whole.access == .scan)
        #expect(whole.verdict([]) == .ask)
    }

    @Test func `a membership is found by its keys`() throws {
        let held = Policies.membership
        let policy = RowPolicy(.member(held, key: Policies.column(1, Policies.uuid)))
        guard
            case .residual(let residual) = policy.residual(
                claims: Array(#"{"sub": "\#(Self.me)"}"#.utf8), role: [], answers: [:])
        else {
            Issue.record("something was asked")
            return
        }
        #expect(residual.memberships.count == 1)
        let rows = residual.memberships[0].rows
        #expect(rows.access == .anyOf([EqualityKey(slot: 0, form: .asIs, bytes: Array(Self.me.utf8))]))
        #expect(rows.verdict([.text(Self.me), .null]) == .yes)
        #expect(rows.verdict([.text(Self.other), .null]) == .no)
        let keys = MembershipKeys(keys: [Array(Self.me.utf8)], hasNull: true, hasRows: true, hasFailed: false)
        let predicate = residual.predicate(keys: [keys], asker: 1, settings: .forTests)
        #expect(predicate.access == .anyOf([EqualityKey(slot: 1, form: .asIs, bytes: Array(Self.me.utf8))]))
        #expect(predicate.verdict([.null, .text(Self.me)]) == .yes)
        #expect(predicate.verdict([.null, .text(Self.other)]) == .unknown)
        let failed = MembershipKeys(keys: [], hasNull: false, hasRows: false, hasFailed: true)
        #expect(residual.predicate(keys: [failed], asker: 1, settings: .forTests) == .never)
        let empty = MembershipKeys(keys: [], hasNull: false, hasRows: false, hasFailed: false)
        #expect(residual.predicate(keys: [empty], asker: 1, settings: .forTests) == .never)
    }
}

/// Terms as the policy compiler makes them.
enum Policies {
    static let uuid = TypeFacts(oid: 2950, name: "uuid")

    /// `(NULLIF(current_setting('request.jwt.claims'), '')::jsonb ->> 'sub')::uuid`
    static var uid: Term {
        .ofClaims(
            cast(field(cast(claims, to: .jsonb), "sub"), to: uuid),
            AskedTerm(sql: "auth.uid()", type: uuid, isBuiltIn: false))
    }

    static var claims: Term {
        guard let equal = Function.infix("=", .text, .text, .deterministic(name: nil), text: .plainUTF8) else {
            return .undecided
        }
        return .nullIf(equal, .claims, .constant([], .text))
    }

    static var membership: Membership {
        Membership(
            table: 2, keySlot: 1, condition: equal(column(0, uuid), uid), reader: .caller, fillSQL: "SELECT")
    }

    static func column(_ slot: Int, _ type: TypeFacts) -> Term { .column(slot, type) }

    static func equal(_ left: Term, _ right: Term) -> Term {
        guard let a = left.type, let b = right.type,
            let function = Function.infix("=", a, b, .deterministic(name: nil), text: .plainUTF8)
        else { return .undecided }
        return .apply(function, [left, right])
    }

    static func cast(_ term: Term, to type: TypeFacts) -> Term {
        guard let from = term.type, let function = Function.cast(from, to: type, text: .utf8, timeZone: nil) else {
            return .undecided
        }
        return .apply(function, [term])
    }

    static func field(_ term: Term, _ name: String) -> Term {
        guard let type = term.type,
            let function = Function.infix("->>", type, .text, .deterministic(name: nil), text: .plainUTF8)
        else { return .undecided }
        return .apply(function, [term, .constant(Array(name.utf8), .text)])
    }

    static func predicate(_ term: Term, claims: String, asker: UInt32 = 1) throws -> Predicate {
        let outcome = RowPolicy(term).residual(
            claims: Array(claims.utf8), role: Array("authenticated".utf8), answers: answered)
        guard case .residual(let residual) = outcome else { return .never }
        return residual.predicate(keys: [], asker: asker, settings: .forTests)
    }

    /// PostgreSQL's answers for claims that are not simple values.
    private static let answered: [AskedTerm: AskedAnswer] = [
        AskedTerm(sql: "auth.uid()", type: uuid, isBuiltIn: false): .failed
    ]
}

@Suite(.within(minutes: 5)) struct BothTests {
    private static let me = "8b2e8ba0-0000-4000-8000-000000000001"
    private static let columns = [
        ColumnFacts(name: "flag", type: .boolean), ColumnFacts(name: "owner", type: Policies.uuid),
        ColumnFacts(name: "title", type: .text, collation: .deterministic(name: nil)),
    ]

    private static func filter(_ text: String) throws -> Predicate {
        let parsed = try #require(try Filter.parse(text, within: .init(bytes: 1000, conditions: 20, depth: 5)))
        let check = try FilterCheck(parsed, columns: columns, settings: .forTests)
        return try Predicate(check, canonical: check.literals.map(\.text))
    }

    private static func owner() throws -> Predicate {
        try Policies.predicate(
            Policies.equal(Policies.column(1, Policies.uuid), Policies.uid), claims: #"{"sub": "\#(me)"}"#)
    }

    @Test func `constants fold`() throws {
        let filter = try Self.filter("title=eq.a")
        let owner = try Self.owner()
        #expect(Predicate.both(filter, .always) == filter)
        #expect(Predicate.both(.always, owner) == owner)
        #expect(Predicate.both(filter, .never) == .never)
        #expect(Predicate.both(.always, .never) == .never)
    }

    @Test func `a filter for what the policy allows is the filter`() throws {
        let owner = try Self.owner()
        let same = try Self.filter("owner=eq.\(Self.me)")
        #expect(Predicate.both(same, owner) == same)
        #expect(Predicate.both(same, owner).isDecidedByAccess)
        let wider = try Self.filter("owner=in.(\(Self.me),8b2e8ba0-0000-4000-8000-000000000002)")
        #expect(Predicate.both(wider, owner) == owner)
        let other = try Self.filter("owner=eq.8b2e8ba0-0000-4000-8000-000000000002")
        #expect(Predicate.both(other, owner) == .never)
    }

    @Test func `it is found by the fewer keys and says the conjunction`() throws {
        let both = Predicate.both(try Self.filter("title=in.(a,b,c)"), try Self.owner())
        #expect(both.access == (try Self.owner()).access)
        #expect(!both.isDecidedByAccess)
        #expect(both.slots == [1, 2])
        #expect(both.verdict([.null, .text(Self.me), .text("b")]) == .yes)
        #expect(both.verdict([.null, .text(Self.me), .text("d")]) == .no)
        #expect(both.verdict([.null, .text(Self.me), .null]) == .unknown)
    }

    @Test func `an absent column is asked about, a filter's and a policy's`() throws {
        let both = Predicate.both(try Self.filter("title=eq.b"), try Self.owner())
        #expect(both.verdict([.null, .text(Self.me), .absent]) == .ask)
        #expect(both.filterVerdict([.null, .absent, .text("b")]) == .yes)
        #expect(both.verdict([.null, .absent, .text("b")]) == .ask)
        #expect(both.verdict([.null, .absent, .text("c")]) == .no)
    }

    @Test func `each side keeps whom it asks`() throws {
        let filter = try Self.filter("title=match.^a")
        let policy = try Policies.predicate(.all([.column(0, .boolean), .undecided]), claims: "{}", asker: 9)
        let both = Predicate.both(filter, policy)
        #expect(both.question == filter.question && both.question != nil)
        #expect(both.asker == 9)
        #expect(both.verdict([.text("f"), .null, .text("a")]) == .no)
        #expect(both.verdict([.text("t"), .null, .text("a")]) == .ask)
        #expect(Predicate.both(filter, try Self.owner()).asker == nil)
    }

    @Test func `what changes with time is not settled when it is made`() throws {
        let now = try #require(Function.named("now", [], .none, text: .plainUTF8))
        let interval = TypeFacts(oid: 1186, name: "interval")
        let minus = try #require(
            Function.infix("-", now.result, interval, .none, text: .plainUTF8, timeZone: "UTC"))
        let less = try #require(Function.infix(">", now.result, now.result, .none, text: .plainUTF8))
        let term = Term.apply(
            less,
            [
                .column(0, now.result),
                .apply(minus, [.apply(now, []), .constant(Array("7 days".utf8), interval)]),
            ])
        let predicate = try Policies.predicate(term, claims: "{}")
        // The moment 2026-03-08 10:00:00 in UTC.
        let moment = Int64(826_279_200) * 1_000_000
        #expect(InstantText.zoned(moment) == Array("2026-03-08 10:00:00+00".utf8))
        #expect(predicate.verdict([.text("2026-03-01 10:00:00.5+00")], moment: moment) == .yes)
        #expect(predicate.verdict([.text("2026-03-01 12:00:00+02")], moment: moment) == .no)
        #expect(predicate.verdict([.text("2026-03-01 12:00:00+02")]) == .ask)
        #expect(predicate.asker == nil)
    }

    @Test func `arrays of arrays are PostgreSQL's`() throws {
        let equal = try #require(
            Function.infix("=", .text, .text, .deterministic(name: nil), text: .plainUTF8))
        let column = Term.column(0, .textArray)
        let term = Term.anyElement(
            equal, .constant(Array("a".utf8), .text), array: .array([column, column], .textArray))
        let predicate = try Policies.predicate(term, claims: "{}", asker: 5)
        #expect(predicate.asker == 5)
        #expect(predicate.verdict([.text("{a}")]) == .ask)
    }

    @Test func `many keys are found and too many are tried`() throws {
        let held = Policies.membership
        let policy = RowPolicy(.member(held, key: Policies.column(1, Policies.uuid)))
        guard
            case .residual(let residual) = policy.residual(
                claims: Array(#"{"sub": "\#(Self.me)"}"#.utf8), role: [], answers: [:])
        else {
            Issue.record("something was asked")
            return
        }
        let keys = (100..<1400).map { Array("8b2e8ba0-0000-4000-8000-00000000\($0)".utf8) }
        for count in [1000, 1001] {
            let membership = MembershipKeys(
                keys: Array(keys.prefix(count)), hasNull: false, hasRows: true, hasFailed: false)
            let predicate = residual.predicate(keys: [membership], asker: 1, settings: .forTests)
            #expect((predicate.access == .scan) == (count > 1000))
            for (index, key) in keys.enumerated() {
                let text = String(decoding: key, as: UTF8.self)
                #expect(predicate.verdict([.null, .text(text)]) == (index < count ? .yes : .no))
            }
        }
    }
}

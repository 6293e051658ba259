/// Whose eyes an image of a row is put before: a person, and what a filter asks beyond that.
struct Listener: Sendable, Equatable {
    var number: Int
    var table: String
    var person: VerifyPerson
    var condition: String
}

enum VerifyPerson: Int, CaseIterable, Sendable {
    case ana = 1
    case ben, cleo, dora
    /// Nobody in particular.
    case anon

    var id: String { "00000000-0000-4000-8000-00000000000\(rawValue)" }
    var role: String { self == .anon ? "anon" : "authenticated" }

    /// What stands in tokens, and what PostgreSQL is asked with.
    var claims: String { self == .anon ? #"{"role":"anon"}"# : #"{"role":"authenticated","sub":"\#(id)"}"# }
}

/// One table, and what the policy on it says; nil where there is none.
struct VerifyTable: Sendable {
    static let fences = "fences"
    /// The one that is taken out of the publication and put back. The client for Python joins again and again on the same
    /// socket for as long as one of its tables is not published.
    static let listed = "listed"
    static let all = [
        VerifyTable(name: fences, policy: nil),
        VerifyTable(name: "plain", policy: nil), VerifyTable(name: listed, policy: nil),
        VerifyTable(name: "owned", policy: "owner = auth.uid()"),
        VerifyTable(name: "shared", policy: "team IN (SELECT m.team FROM members m WHERE m.person = auth.uid())"),
        // Only PostgreSQL can say what this says; and it says the same whenever it is asked.
        VerifyTable(name: "asked", policy: "verify.may_read(owner, kind)"),
    ]
    /// What writers write to.
    static let written = all.map(\.name).filter { $0 != fences }

    var name: String
    var policy: String?
}

/// What a channel asks for, in the protocol's words and in SQL.
struct VerifyBinding: Sendable {
    var table: String
    var filter: String?
    var condition = "true"

    var request: String {
        let filter = filter.map { #","filter":"\#($0)""# } ?? ""
        return #"{"event":"*","schema":"public","table":"\#(table)"\#(filter)}"#
    }
}

/// Clients that hear the same: one person with the same bindings.
struct VerifySeat: Sendable {
    var name: String
    var person: VerifyPerson
    var bindings: [VerifyBinding]

    /// Everybody hears fences.
    init(_ name: String, _ person: VerifyPerson, _ bindings: [VerifyBinding]) {
        self.name = name
        self.person = person
        self.bindings = bindings + [VerifyBinding(table: VerifyTable.fences)]
    }

    static let all: [VerifySeat] = [
        everything(of: .ana), everything(of: .ben), everything(of: .cleo),
        VerifySeat("listed", .ben, [VerifyBinding(table: VerifyTable.listed), VerifyBinding(table: "owned")]),
        VerifySeat("owned", .dora, [VerifyBinding(table: "owned")]),
        VerifySeat("shared", .ana, [VerifyBinding(table: "shared")]),
        VerifySeat("asked", .ben, [VerifyBinding(table: "asked")]),
        one("plain", .anon, "n=gt.3", "n > 3"), one("plain", .cleo, "kind=eq.a", "kind = 'a'"),
        one("plain", .dora, "n=in.(1,2)", "n IN (1, 2)"), one("plain", .ana, "note=like.v1%", "note LIKE 'v1%'"),
        one("owned", .ana, "n=neq.3", "n <> 3"), one("shared", .ben, "n=lte.2", "n <= 2"),
        one("asked", .cleo, "n=not.in.(1,2)", "NOT (n IN (1, 2))"),
    ]

    private static func everything(of person: VerifyPerson) -> VerifySeat {
        VerifySeat(
            "everything", person,
            VerifyTable.written.filter { $0 != VerifyTable.listed }.map { VerifyBinding(table: $0) })
    }

    private static func one(
        _ table: String, _ person: VerifyPerson, _ filter: String, _ condition: String
    ) -> VerifySeat {
        VerifySeat(
            "\(table) \(filter)", person, [VerifyBinding(table: table, filter: filter, condition: condition)])
    }

    /// All that PostgreSQL is asked for each image, and for each seat the numbers of those that count for it.
    static func listeners(_ seats: [VerifySeat]) -> (all: [Listener], bySeat: [Set<Int>]) {
        var all: [Listener] = []
        let bySeat = seats.map { seat in
            Set(
                seat.bindings.map { binding in
                    let wanted = Listener(
                        number: all.count + 1, table: binding.table, person: seat.person, condition: binding.condition)
                    let known = all.first {
                        $0.table == wanted.table && $0.person == wanted.person && $0.condition == wanted.condition
                    }
                    if known == nil { all.append(wanted) }
                    return known?.number ?? wanted.number
                })
        }
        return (all, bySeat)
    }
}

/// Reader for whom PostgreSQL decides which rows of a table are visible: a person, with the condition of a filter.
struct Listener: Sendable, Equatable {
    var number: Int
    var table: String
    var person: VerifyPerson
    var condition: String
}

enum VerifyPerson: Int, CaseIterable, Sendable {
    case ana = 1
    case ben, cleo, dora
    /// Client without a login.
    case anon

    var id: String { "00000000-0000-4000-8000-00000000000\(rawValue)" }
    var role: String { self == .anon ? "anon" : "authenticated" }

    /// Claims in the person's tokens. PostgreSQL evaluates policies with the same claims.
    var claims: String { self == .anon ? #"{"role":"anon"}"# : #"{"role":"authenticated","sub":"\#(id)"}"# }
}

/// Table to which clients listen, with the condition of its policy; nil if there is no policy.
struct VerifyTable: Sendable {
    static let fences = "fences"
    /// Name of a table that a fault removes from the publication and adds again. Only one seat has it, because a client
    /// for Python joins again and again on the same socket while one of its tables is not published.
    static let listed = "listed"
    static let all = [
        VerifyTable(name: fences, policy: nil),
        VerifyTable(name: "plain", policy: nil), VerifyTable(name: listed, policy: nil),
        VerifyTable(name: "owned", policy: "owner = auth.uid()"),
        VerifyTable(name: "shared", policy: "team IN (SELECT m.team FROM members m WHERE m.person = auth.uid())"),
        // The hub cannot evaluate this policy, so PostgreSQL decides it. The answer for a row never changes.
        VerifyTable(name: "asked", policy: "verify.may_read(owner, kind)"),
    ]
    /// Names of the tables to which writers write.
    static let written = all.map(\.name).filter { $0 != fences }

    var name: String
    var policy: String?
}

/// Binding of a channel, as the protocol requests it and as SQL.
struct VerifyBinding: Sendable {
    var table: String
    var filter: String?
    var condition = "true"

    var request: String {
        let filter = filter.map { #","filter":"\#($0)""# } ?? ""
        return #"{"event":"*","schema":"public","table":"\#(table)"\#(filter)}"#
    }
}

/// Person and bindings that several clients of the verifier have in common. These clients have to receive the same
/// changes.
struct VerifySeat: Sendable {
    var name: String
    var person: VerifyPerson
    var bindings: [VerifyBinding]

    /// Creates a seat with these bindings and one more: to the table of fences, rows that all clients receive.
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

    /// Returns the listeners of all seats, each once, and for each seat the indexes of its listeners.
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

import CTexts
import Postgres

/// A function that tries for many askers of one role what `realtime.messages` lets them do, one after the other.
///
/// For whoever wants to read, rows are inserted before the role is taken on, and it is looked which of them can be seen
/// afterwards; whoever wants to write inserts in that role. Each asker has a subtransaction that is rolled back, so that
/// nobody sees another's rows and nothing that a policy's functions do outlives the answer.
///
/// There is a function for each role: a plan that was made for one role never answers for another.
enum ProbeScript {
    /// Who inserts the rows that askers try to see.
    enum Insertion: Sendable, Equatable {
        /// A function of the database's, for a login without privileges of its own.
        case byFunction
        /// The login itself, which no policy binds.
        case directly
    }

    /// In the order of the function's columns.
    enum Column {
        static let who = 0
        static let broadcast = 1
        static let presence = 2
        static let error = 3
        static let step = 4
        static let isPartition = 5
        static let count = 6
    }

    /// What was being done when it failed.
    enum Step: String {
        case insert, role, policy
    }

    /// As the function knows what is asked.
    static func code(_ probe: ChannelQuestion.Probe) -> String {
        switch probe {
        case .read(presence: false): "b"
        case .read(presence: true): "p"
        case .write: "w"
        }
    }

    /// What stands for a word of the statement is put in with the role last: no name of a role is taken for such a word.
    static func function(named name: String, as role: String, inserting insertion: Insertion) -> String {
        let role = Quoted.literal(role)
        return template.replacing(":name", with: name).replacing(":insertion", with: insert(insertion))
            .replacing(":quote", with: dollarQuote(notIn: template + role)).replacing(":'role'", with: role)
    }

    private static let template: String = {
        // SAFETY: the bytes are a constant of the program, as many as it says.
        let file = unsafe tw_channel_probe()
        return unsafe String(
            decoding: UnsafeRawBufferPointer(start: file.text, count: file.length), as: UTF8.self)
    }()

    /// `payload` and `event` stay NULL and `private` is what the table says, which is false: policies are written for that.
    private static func insert(_ insertion: Insertion) -> String {
        switch insertion {
        case .byFunction:
            """
            PERFORM tidewire.add_channel_probes(
                pg_catalog.array_fill("tw$topics"["tw$index"], ARRAY[pg_catalog.cardinality("tw$ids")]),
                "tw$extensions", "tw$ids");
            """
        case .directly:
            """
            INSERT INTO realtime.messages (id, topic, extension, inserted_at, updated_at)
            SELECT "tw$new"."id", "tw$topics"["tw$index"], "tw$new"."extension", "tw$now", "tw$now"
            FROM ROWS FROM (pg_catalog.unnest("tw$ids"), pg_catalog.unnest("tw$extensions"))
                AS "tw$new" ("id", "extension");
            """
        }
    }

    private static func dollarQuote(notIn text: String) -> String {
        var number = 0
        while text.contains("$tidewire\(number)$") { number += 1 }
        return "$tidewire\(number)$"
    }
}

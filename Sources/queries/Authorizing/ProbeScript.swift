import CTexts
import Postgres

/// SQL function that tests the rights of many askers of one role on `realtime.messages`, one after the other.
///
/// To test reading, the function inserts rows, switches to the role, and checks which rows the role sees. To test
/// writing, it inserts rows as the role. Each asker is tested in a subtransaction that is rolled back. So no asker sees
/// another's rows, and effects of a policy's functions end with the test.
///
/// Each role has its own function, so that PostgreSQL never uses a plan made for another role.
enum ProbeScript {
    /// Way in which the testing function inserts the rows that clients try to read.
    enum Insertion: Sendable, Equatable {
        /// A function of the database inserts the rows, because the login lacks the privilege to insert.
        case byFunction
        /// The login inserts the rows itself, because no policy applies to it.
        case directly
    }

    /// Columns of the testing function's result, in this order.
    enum Column {
        static let who = 0
        static let broadcast = 1
        static let presence = 2
        static let error = 3
        static let step = 4
        static let isPartition = 5
        static let count = 6
    }

    /// Step at which the test of an asker failed.
    enum Step: String {
        case insert, role, policy
    }

    /// Returns the letter that tells the SQL function which right it has to test.
    static func code(_ probe: ChannelQuestion.Probe) -> String {
        switch probe {
        case .read(presence: false): "b"
        case .read(presence: true): "p"
        case .write: "w"
        }
    }

    /// Returns the SQL that creates the function. The role's name is inserted last, so that a placeholder in the name
    /// is not replaced.
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

    /// Returns the SQL statement that inserts the rows. `payload` and `event` are NULL and `private` is false by
    /// default, because Supabase's policies are written for such rows.
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

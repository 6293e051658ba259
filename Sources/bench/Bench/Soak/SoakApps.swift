import Examples
import Foundation
import TidewireClient

/// Device of a person in the expenses app. Each person has two devices.
final class ExpenseSeat: SoakSeat {
    private static let money = "financial_transactions"
    private var model: ExpensesModel?

    override func makeModel() {
        let saved = model?.saved ?? ExpensesModel.Saved()
        model = ExpensesModel(client, writes: writes, me: person, saved: saved)
    }

    override func work() -> [@MainActor @Sendable () async -> Void] {
        guard let model else { return [] }
        return [{ await model.run() }, { await model.sendWrites() }]
    }

    override func act(_ chance: inout VerifyChance) async throws {
        guard let model else { return }
        let owner = JSONValue.string(person.text)
        let title = JSONValue.string("t\(chance.number(0...999_999))")
        let known = model.saved.records[Self.money, default: [:]].keys.sorted().compactMap { UUID(uuidString: $0) }
        switch chance.number(0...9) {
        case 0...3: try model.write(Self.money, UUID(), ["owner_id": owner, "title": title, "amount": 5])
        case 4...6:
            if let id = known.randomElement(using: &chance) { try model.write(Self.money, id, ["title": title]) }
        case 7:
            guard let id = known.randomElement(using: &chance) else { break }
            try model.write(Self.money, id, ["deleted_at": .string(Date().filterText)])
        case 8: try model.write("reminders", UUID(), ["owner_id": owner, "message": title])
        default:
            guard let id = known.randomElement(using: &chance) else { break }
            _ = try await database.ask("DELETE FROM \(Self.money) WHERE id = '\(id)'", as: person)
        }
    }

    override func shown() -> [String] {
        [(Self.money, "title"), ("reminders", "message")].flatMap { table, column in
            (model?.saved.records[table] ?? [:]).map { id, record in
                let date = record.version.updatedAt.map { Int64(($0.timeIntervalSince1970 * 1_000_000).rounded()) }
                let text = record.image[column]?.text ?? ""
                return "\(table)|\(id)|\(text)|\(date ?? 0)|\(record.version.isDeleted)"
            }
        }
    }

    override func expected() -> String {
        [(Self.money, "title"), ("reminders", "message")].map { table, column in
            """
            SELECT concat_ws('|', '\(table)', id, \(column), (extract(epoch FROM updated_at) * 1000000)::bigint,
                             (deleted_at IS NOT NULL)::text) FROM \(table)
            """
        }.joined(separator: " UNION ALL ")
    }
}

final class MapSeat: SoakSeat {
    private let operation: UUID
    private var model: OperationModel?
    private var cutoff = Date()

    init(_ database: SoakDatabase, _ person: UUID, port: UInt16, operation: UUID) {
        self.operation = operation
        super.init(database, person, port: port)
    }

    override func makeModel() { model = OperationModel(client, writes: writes, operation: operation, me: person) }

    override func work() -> [@MainActor @Sendable () async -> Void] {
        guard let model else { return [] }
        return [{ await model.run() }, { await model.sendWrites() }]
    }

    override func act(_ chance: inout VerifyChance) async throws {
        if chance.number(0...1) == 0 {
            try model?.publish(latitude: Double(chance.number(-80...80)), longitude: Double(chance.number(-80...80)))
        } else {
            try model?.send("m\(chance.number(0...999_999))")
        }
    }

    override func shown() -> [String] {
        guard let model else { return [] }
        return model.messages.map { "m|\($0.id.text)|\($0.content)" }
            + model.trails.values.joined().filter { $0.timestamp > cutoff }.map { "l|\($0.id.text)" }
    }

    override func expected() -> String {
        cutoff = Date().addingTimeInterval(30 - OperationModel.trail)
        return """
            SELECT concat_ws('|', 'm', id, content) FROM op_messages WHERE operation_id = '\(operation)'
            UNION ALL SELECT concat_ws('|', 'l', id) FROM locations_stream
            WHERE operation_id = '\(operation)' AND timestamp > \(cutoff.filterText.quoted)
            """
    }

    override func faults() -> [String] {
        let ids = model?.messages.map(\.id) ?? []
        return Set(ids).count == ids.count ? [] : ["a message is there twice"]
    }
}

final class FeedSeat: SoakSeat {
    private let others: [UUID]
    private var model: FeedModel?

    init(_ database: SoakDatabase, _ person: UUID, port: UInt16, others: [UUID]) {
        self.others = others
        super.init(database, person, port: port)
    }

    override func makeModel() { model = FeedModel(client, writes: writes, me: person) }

    override func work() -> [@MainActor @Sendable () async -> Void] {
        guard let model else { return [] }
        return [{ await model.run() }, { await model.sendWrites() }]
    }

    override func act(_ chance: inout VerifyChance) async throws {
        guard let model else { return }
        let post = model.feed.prefix(30).randomElement(using: &chance)?.id
        switch chance.number(0...19) {
        case 0...3:
            _ = try await database.ask(
                "INSERT INTO posts (author, caption, media_key) VALUES ('\(person)', 'c', 'm')", as: person)
        case 4...10: if let post { try model.reactions.toggleLike(post) }
        case 11...14: if let post { try model.reactions.comment(post, "b\(chance.number(0...999_999))") }
        case 15: model.showNewPosts()
        case 16:
            _ = try await database.ask(
                "DELETE FROM comments WHERE id = (SELECT id FROM comments WHERE user_id = '\(person)' LIMIT 1)",
                as: person)
        case 17:
            _ = try await database.ask(
                "DELETE FROM posts WHERE id = (SELECT id FROM posts WHERE author = '\(person)' LIMIT 1)", as: person)
        default:
            guard let other = others.randomElement(using: &chance), other != person else { break }
            let sql =
                model.following.contains(other)
                ? "DELETE FROM follows WHERE follower_id = '\(person)' AND followee_id = '\(other)'"
                : "INSERT INTO follows VALUES ('\(person)', '\(other)') ON CONFLICT DO NOTHING"
            _ = try await database.ask(sql, as: person)
        }
    }

    override func shown() -> [String] {
        guard let model else { return [] }
        model.showNewPosts()
        return model.following.map { "f|\($0.text)" }
            + model.feed.flatMap { post in
                ["p|\(post.id.text)|\(model.reactions.likeCount(post.id))|\(model.reactions.isLiked(post.id))"]
                    + model.reactions.comments(post.id).map { "c|\($0.id.text)|\($0.body)" }
            }
    }

    override func expected() -> String {
        """
        SELECT concat_ws('|', 'f', followee_id) FROM follows WHERE follower_id = '\(person)'
        UNION ALL SELECT concat_ws('|', 'p', p.id, (SELECT count(*) FROM likes l WHERE l.post_id = p.id),
            (EXISTS (SELECT 1 FROM likes l WHERE l.post_id = p.id AND l.user_id = '\(person)'))::text) FROM posts p
        UNION ALL SELECT concat_ws('|', 'c', id, body) FROM comments
        """
    }
}

final class ListingSeat: SoakSeat {
    private let listing: String
    private var model: ListingsModel?

    init(_ database: SoakDatabase, _ person: UUID, port: UInt16, listing: String) {
        self.listing = listing
        super.init(database, person, port: port)
    }

    override func makeModel() { model = ListingsModel(client, writes: writes, me: person) }

    override func work() -> [@MainActor @Sendable () async -> Void] {
        guard let model else { return [] }
        return [{ await model.run() }, { await model.sendWrites() }, { [listing] in await model.open(listing) }]
    }

    override func act(_ chance: inout VerifyChance) async throws {
        guard let model else { return }
        switch chance.number(0...13) {
        case 0...3: try model.detail?.addNote("n\(chance.number(0...999_999))")
        case 4...5:
            if let task = model.tasks.rows.filter({ $0.status == .open }).randomElement(using: &chance) {
                try model.claim(task)
            }
        case 6: if let listing = model.inbox.randomElement(using: &chance) { try model.acknowledge(listing) }
        case 7...8:
            _ = try await database.ask(
                "INSERT INTO agent_tasks (title) VALUES ('t\(chance.number(0...999))')", as: person)
        case 9:
            _ = try await database.ask(
                "UPDATE agent_tasks SET status = 'DONE' WHERE id = (SELECT id FROM agent_tasks WHERE status = 'CLAIMED' LIMIT 1)",
                as: person)
        case 10:
            _ = try await database.ask(
                "DELETE FROM listing_notes WHERE id = (SELECT id FROM listing_notes WHERE created_by = '\(person)' LIMIT 1)",
                as: person)
        case 11:
            _ = try await database.ask(
                "UPDATE listings SET status = (ARRAY['new','in_progress','completed'])[\(chance.number(1...3))] WHERE id = '\(listing)'",
                as: person)
        case 12:
            _ = try await database.ask(
                "INSERT INTO activities (listing_id, name, task_category) VALUES ('\(listing)', 'a', 'operations')",
                as: person)
        default:
            _ = try await database.ask(
                "DELETE FROM activities WHERE id = (SELECT id FROM activities WHERE listing_id = '\(listing)' LIMIT 1)",
                as: person)
        }
    }

    override func shown() -> [String] {
        guard let model else { return [] }
        return model.listings.rows.map { "l|\($0.id)|\($0.status)" }
            + model.tasks.rows.map { "t|\($0.id)|\($0.status.rawValue)" }
            + model.acknowledgments.rows.map { "k|\($0.listingID)" }
            + (model.detail?.notes.rows.map { "n|\($0.id)|\($0.content)" } ?? [])
            + (model.detail?.activities.rows.map { "a|\($0.id)" } ?? [])
    }

    override func expected() -> String {
        """
        SELECT concat_ws('|', 'l', id, status) FROM listings
        UNION ALL SELECT concat_ws('|', 't', id, status) FROM agent_tasks
            WHERE status = 'OPEN' OR assigned_staff_id = '\(person)'
        UNION ALL SELECT concat_ws('|', 'k', listing_id) FROM listing_acknowledgments WHERE staff_id = '\(person)'
        UNION ALL SELECT concat_ws('|', 'n', id, content) FROM listing_notes WHERE listing_id = '\(listing)'
        UNION ALL SELECT concat_ws('|', 'a', id) FROM activities WHERE listing_id = '\(listing)'
        """
    }
}

final class FriendSeat: SoakSeat {
    private let others: [UUID]
    private var model: FriendshipsModel?
    /// Toasts that the app has shown so far, in all its launches.
    private var told: [FriendshipsModel.Toast] = []

    init(_ database: SoakDatabase, _ person: UUID, port: UInt16, others: [UUID]) {
        self.others = others
        super.init(database, person, port: port)
    }

    override func makeModel() {
        told += model?.toasts ?? []
        let (database, person) = (database, person)
        model = FriendshipsModel(client, me: person) {
            let rows = try await database.ask("SELECT to_jsonb(f) FROM friendships f", as: person)
            return try rows.map { row in
                try RowImage(try JSONValue(parsing: row[0] ?? "").object ?? [:]).decode(Friendship.self)
            }
        }
    }

    override func work() -> [@MainActor @Sendable () async -> Void] {
        guard let model else { return [] }
        return [{ await model.run() }]
    }

    /// Performs an action of the person. Each pair of users has only one request and one answer, so a toast that is
    /// shown twice is an error.
    override func act(_ chance: inout VerifyChance) async throws {
        guard let other = others.randomElement(using: &chance), other != person else { return }
        let sql =
            switch chance.number(0...3) {
            case 0...1:
                "INSERT INTO friendships (requester_id, addressee_id) VALUES ('\(person)', '\(other)') ON CONFLICT DO NOTHING"
            case 2:
                "UPDATE friendships SET status = 'accepted' WHERE addressee_id = '\(person)' AND requester_id = '\(other)' AND status = 'pending'"
            default:
                "UPDATE friendships SET message = 'm\(chance.number(0...999))' WHERE addressee_id = '\(person)' AND requester_id = '\(other)'"
            }
        _ = try await database.ask(sql, as: person)
    }

    override func shown() -> [String] {
        (model?.friendships.values.map { "\($0.id.text)|\($0.status.rawValue)" } ?? []) + [
            "badge|\(model?.badge ?? -1)"
        ]
    }

    override func expected() -> String {
        """
        SELECT concat_ws('|', id, status) FROM friendships
        UNION ALL SELECT 'badge|' || count(*) FROM friendships WHERE addressee_id = '\(person)' AND status = 'pending'
        """
    }

    override func faults() -> [String] {
        let all = told + (model?.toasts ?? [])
        return Set(all).count == all.count ? [] : ["a toast was shown twice"]
    }
}

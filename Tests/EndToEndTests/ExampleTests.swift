import Examples
import Foundation
import Synchronization
import TestSupport
import Testing
import TidewireClient

private let ana = UUID(uuidString: "00000000-0000-4000-8000-00000000A0A0") ?? UUID()
private let ben = UUID(uuidString: "00000000-0000-4000-8000-00000000BE00") ?? UUID()
private let cleo = UUID(uuidString: "00000000-0000-4000-8000-00000000C1E0") ?? UUID()

extension HubForApps {
    /// A table's rows as an app would get them by HTTP.
    func rows(_ table: String, where condition: String) throws -> [RowImage] {
        try ask("SELECT to_jsonb(t) FROM \(table) t WHERE \(condition)").map { row in
            RowImage(try JSONValue(parsing: row[0] ?? "").object ?? [:])
        }
    }
}

extension EndToEndPrograms {
    /// Each example against the program itself, as its users would have it.
    @Suite(.serialized) struct ExampleTests {
        // MARK: Friendships

        @MainActor private func friendships(_ hub: HubForApps, _ me: UUID) -> (Tidewire, FriendshipsModel) {
            let tidewire = hub.client(me)
            let model = FriendshipsModel(tidewire, me: me) {
                let rows = try hub.rows("friendships", where: "'\(me)' IN (requester_id, addressee_id)")
                return try rows.map { try $0.decode(Friendship.self) }
            }
            return (tidewire, model)
        }

        private func request(_ hub: HubForApps, from requester: UUID, to addressee: UUID) throws {
            _ = try hub.ask(
                "INSERT INTO friendships (requester_id, addressee_id) VALUES ('\(requester)', '\(addressee)')")
        }

        @Test func `friendships: badge, toasts once, both sides, through a hub that is killed and a token that ends`()
            throws
        {
            let hub = try HubForApps()
            try hub.start()
            try onThisThread {
                let (hers, anas) = await friendships(hub, ana)
                let (his, bens) = await friendships(hub, ben)
                let running = [onMainThread { await anas.run() }, onMainThread { await bens.run() }]
                #expect(await eventually { hers.state == .live && his.state == .live })
                #expect(await eventually { anas.hasBegun && bens.hasBegun })

                // A row by hand, past the app: the other side has its badge and one toast, and the sender has none.
                try request(hub, from: ana, to: ben)
                #expect(await eventually { bens.badge == 1 })
                #expect(await eventually { anas.friendships.count == 1 })
                #expect(await eventually { bens.toasts == [.request(from: ana)] })
                #expect(await anas.toasts.isEmpty)

                // What is committed while the hub is killed is told once, too.
                hub.kill()
                try request(hub, from: cleo, to: ben)
                _ = try hub.ask("UPDATE friendships SET status = 'accepted' WHERE requester_id = '\(ana)'")
                try hub.start()
                #expect(await eventually { bens.toasts.count == 2 && anas.toasts.count == 1 })
                // Told of the one it may yet have to hear of the other.
                #expect(await eventually { bens.badge == 1 && bens.friends == [ana] && anas.friends == [ben] })
                #expect(await anas.toasts == [.accepted(by: ben)])

                // Another token while it runs, and a moment in the background.
                his.signIn(token: hub.token(ben))
                his.enterBackground()
                _ = try hub.ask("DELETE FROM friendships WHERE requester_id = '\(ana)'")
                his.enterForeground()
                #expect(await eventually { anas.friendships.isEmpty && bens.friendships.count == 1 })
                #expect(await bens.toasts == [.request(from: ana), .request(from: cleo)])
                #expect(await bens.problems.isEmpty)

                // Whoever signs out is told nothing more.
                his.signOut()
                try request(hub, from: ana, to: ben)
                #expect(await eventually { anas.friendships.count == 1 })
                #expect(await bens.friendships.count == 1)
                for task in running { task.cancel() }
            }
        }

        // MARK: Expenses

        /// What a server does with a write: it may be told twice.
        private func take(_ write: PendingWrite, _ hub: HubForApps) -> OfflineWrites.Answer {
            var values = write.values
            values["id"] = .string(write.row)
            let names = values.keys.sorted().joined(separator: ", ")
            let rest = values.keys.filter { $0 != "id" }.sorted().map { "\($0) = excluded.\($0)" }
            let sql =
                "INSERT INTO \(write.table) (\(names)) SELECT \(names) FROM jsonb_populate_record(NULL::\(write.table), '"
                + JSONValue.object(values).json.replacing("'", with: "''") + "') ON CONFLICT (id) DO UPDATE SET "
                + rest.joined(separator: ", ")
            do {
                _ = try hub.ask(sql)
                return .done
            } catch {
                return .refused("\(error)")
            }
        }

        @MainActor private func expenses(
            _ hub: HubForApps, isOnline: @escaping @Sendable () -> Bool = { true }
        ) -> (Tidewire, ExpensesModel) {
            let tidewire = hub.client(ana)
            let writes = OfflineWrites(storage: MemoryStorage()) { write in isOnline() ? take(write, hub) : .later }
            let model = ExpensesModel(tidewire, writes: writes, me: ana) { table in
                try hub.rows(table, where: "owner_id = '\(ana)'")
            }
            return (tidewire, model)
        }

        private func spend(_ title: String) -> [String: JSONValue] {
            ["owner_id": .string(ana.uuidString.lowercased()), "title": .string(title), "amount": .number("12.50")]
        }

        @Test func `expenses: two devices, a burst in few saves, offline writes, the last write wins, deletes`() throws
        {
            let hub = try HubForApps()
            try hub.start()
            let table = "financial_transactions"
            try onThisThread {
                let isOnline = Flag()
                let (phoneLine, phone) = await expenses(hub) { isOnline.value }
                let (tabletLine, tablet) = await expenses(hub)
                let running = [
                    onMainThread { await phone.run() }, onMainThread { await tablet.run() },
                    onMainThread { await phone.sendWrites() },
                ]
                #expect(await eventually { phoneLine.state == .live && tabletLine.state == .live })

                // Written without a network: shown at once, not green, and sent when there is one.
                let coffee = UUID()
                try await phone.write(table, coffee, spend("coffee"))
                #expect(await phone.record(table, coffee) != nil)
                #expect(await !phone.isSynced)
                isOnline.value = true
                #expect(await eventually { tablet.record(table, coffee)?.image["title"] == "coffee" })
                #expect(await eventually { phone.isSynced })

                // A burst is few saves.
                let before = await tablet.saves
                _ = try hub.ask(
                    "INSERT INTO financial_transactions (owner_id, title, amount) SELECT '\(ana)', 'import', 1 FROM generate_series(1, 200)"
                )
                #expect(await eventually { tablet.saved.records[table]?.count == 201 })
                #expect(await tablet.saves - before < 20)

                // An older write of another device does not go over a newer one; a newer one does.
                for (date, title) in [("2001-01-01", "older"), ("2101-01-01", "newer")] {
                    _ = try hub.ask(
                        "UPDATE financial_transactions SET title = '\(title)', updated_at = '\(date)' WHERE id = '\(coffee)'"
                    )
                }
                #expect(await eventually { tablet.record(table, coffee)?.image["title"] == "newer" })

                // While the hub is killed: a soft delete and a hard one.
                hub.kill()
                _ = try hub.ask("UPDATE financial_transactions SET deleted_at = now() WHERE id = '\(coffee)'")
                _ = try hub.ask("DELETE FROM financial_transactions WHERE title = 'import'")
                try hub.start()
                #expect(await eventually { tablet.saved.records[table]?.count == 1 })
                #expect(await tablet.record(table, coffee)?.version.isDeleted == true)
                #expect(await tablet.problems.filter { $0.severity == .error }.isEmpty)
                for task in running { task.cancel() }
            }
        }
    }

    private final class Flag: Sendable {
        private let stored = Mutex(false)
        var value: Bool {
            get { stored.withLock { $0 } }
            set { stored.withLock { $0 = newValue } }
        }
    }
}

import Examples
import Foundation
import Postgres
import Synchronization
import TestSupport
import Testing
import TidewireClient

private let ana = UUID(uuidString: "00000000-0000-4000-8000-00000000A0A0") ?? UUID()
private let ben = UUID(uuidString: "00000000-0000-4000-8000-00000000BE00") ?? UUID()
private let cleo = UUID(uuidString: "00000000-0000-4000-8000-00000000C1E0") ?? UUID()

extension HubForApps {
    /// Runs `sql` as this person, under the policies, as an app's API would.
    func ask(_ sql: String, as person: UUID) throws -> [[String?]] {
        let connection = try Connection(target)
        let claims = #"{"role":"authenticated","sub":"\#(person.uuidString.lowercased())"}"#
        _ = try connection.execute("BEGIN")
        _ = try connection.execute("SELECT set_config('request.jwt.claims', '\(claims)', true)")
        _ = try connection.execute("SET LOCAL ROLE authenticated")
        let answer = try connection.execute(sql).values
        _ = try connection.execute("COMMIT")
        return answer
    }

    /// Applies a write as an app's API would: a repeated write is harmless, and an older write never replaces a newer
    /// one.
    func take(_ write: PendingWrite, of person: UUID) -> OfflineWrites.Answer {
        var values = write.values
        let isLike = write.table == Like.table
        if !isLike, values["id"] == nil { values["id"] = .string(write.row) }
        let names = values.keys.sorted()
        let record =
            "jsonb_populate_record(NULL::\(write.table), '"
            + JSONValue.object(values).json.replacing("'", with: "''") + "') AS r"
        let key = isLike ? "(t.post_id, t.user_id) = (r.post_id, r.user_id)" : "t.id = r.id"
        let isNewer = values["updated_at"] == nil ? "" : " AND t.updated_at <= r.updated_at"
        do {
            switch write.kind {
            case .insert:
                let list = names.joined(separator: ", ")
                _ = try ask(
                    "INSERT INTO \(write.table) (\(list)) SELECT \(list) FROM \(record) ON CONFLICT DO NOTHING",
                    as: person)
            case .update:
                let list = names.filter { $0 != "id" }.map { "\($0) = r.\($0)" }.joined(separator: ", ")
                _ = try ask("UPDATE \(write.table) AS t SET \(list) FROM \(record) WHERE \(key)\(isNewer)", as: person)
                let isThere =
                    try ask("SELECT 1 FROM \(write.table) AS t, \(record) WHERE \(key)", as: person).count == 1
                if !isThere { return .refused("it is gone") }
            case .delete: _ = try ask("DELETE FROM \(write.table) AS t USING \(record) WHERE \(key)", as: person)
            }
            return .done
        } catch {
            return .refused("\(error)")
        }
    }

    func writes(
        of person: UUID, isOnline: @escaping @Sendable () -> Bool = { true }
    ) -> OfflineWrites {
        // After its test, a writer may still send, when there is no hub any more.
        OfflineWrites(storage: Tidewire.MemoryStorage()) { [weak self] write in
            guard let self, isOnline() else { return .later }
            return self.take(write, of: person)
        }
    }

    /// Returns a table's rows as an app would get them over HTTP.
    func rows(_ table: String, where condition: String) throws -> [RowImage] {
        try ask("SELECT to_jsonb(t) FROM \(table) t WHERE \(condition)").map { row in
            RowImage(try JSONValue(parsing: row[0] ?? "").object ?? [:])
        }
    }
}

extension EndToEndPrograms {
    /// Tests of each example app against the program itself, as its users run it.
    @Suite(.serialized) struct ExampleTests {
        private func end(_ running: [Task<Void, Never>]) async {
            for task in running { task.cancel() }
            for task in running { await task.value }
        }

        /// Problems that the end of a token may cause. On a slow machine, a token may expire before it is used.
        private static let ofTokens: Set = ["TokenExpired", "TokenRefused", "InvalidJWTToken"]

        /// True if the app's state reports the end of a token that expires after three seconds.
        private func tokenEnds(_ hub: HubForApps, _ line: Tidewire, _ person: UUID) async -> Bool {
            line.signIn(token: hub.token(person, seconds: 3))
            return await eventually { if case .offline(.tokenRefused) = line.state { true } else { false } }
        }

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

                // A row that was inserted without the app gives the other person a badge and one toast, and the sender
                // nothing.
                try request(hub, from: ana, to: ben)
                #expect(await eventually { bens.badge == 1 })
                #expect(await eventually { anas.friendships.count == 1 })
                #expect(await eventually { bens.toasts == [.request(from: ana)] })
                #expect(await anas.toasts.isEmpty)

                // A change that is committed while the hub is down is also reported exactly once.
                hub.kill()
                try request(hub, from: cleo, to: ben)
                _ = try hub.ask("UPDATE friendships SET status = 'accepted' WHERE requester_id = '\(ana)'")
                try hub.start()
                #expect(await eventually { bens.toasts.count == 2 && anas.toasts.count == 1 })
                // When one of the two changes has been reported, the other may not have arrived yet.
                #expect(await eventually { bens.badge == 1 && bens.friends == [ana] && anas.friends == [ben] })
                #expect(await anas.toasts == [.accepted(by: ben)])

                // A token expires, a row is deleted before the next token, and the app is in the background for a
                // moment.
                #expect(await tokenEnds(hub, his, ben))
                his.enterBackground()
                _ = try hub.ask("DELETE FROM friendships WHERE requester_id = '\(ana)'")
                his.enterForeground()
                his.signIn(token: hub.token(ben))
                #expect(await eventually { anas.friendships.isEmpty && bens.friendships.count == 1 })
                #expect(await bens.toasts == [.request(from: ana), .request(from: cleo)])
                #expect(
                    await bens.problems.filter { $0.severity == .error }.allSatisfy { Self.ofTokens.contains($0.code) })

                // A client that signs out receives nothing more.
                his.signOut()
                try request(hub, from: ana, to: ben)
                #expect(await eventually { anas.friendships.count == 1 })
                #expect(await bens.friendships.count == 1)
                await end(running)
            }
        }

        @Test func `a request that arrives in the background is told when the app comes back, once`() throws {
            let hub = try HubForApps()
            try request(hub, from: cleo, to: ben)
            try hub.start()
            try onThisThread {
                let (his, bens) = await friendships(hub, ben)
                let running = [onMainThread { await bens.run() }]
                #expect(await eventually { bens.hasBegun && bens.badge == 1 })
                // Rows that existed before the app started cause no toast.
                #expect(await bens.toasts.isEmpty)
                his.enterBackground()
                his.updateNetwork(isReachable: false)
                try request(hub, from: ana, to: ben)
                his.updateNetwork(isReachable: true)
                his.enterForeground()
                #expect(await eventually { bens.badge == 2 })
                #expect(await bens.toasts == [.request(from: ana)])
                await end(running)
            }
        }

        /// Checks a delete without full replica identity: the old row has only its key, so the hub cannot evaluate a
        /// filter on it.
        @Test func `a delete is told although the table has no replica identity full, and to nobody else`() throws {
            let hub = try HubForApps()
            _ = try hub.ask("ALTER TABLE friendships REPLICA IDENTITY DEFAULT")
            try hub.start()
            try onThisThread {
                let (_, anas) = await friendships(hub, ana)
                let (_, cleos) = await friendships(hub, cleo)
                let running = [onMainThread { await anas.run() }, onMainThread { await cleos.run() }]
                #expect(await eventually { anas.hasBegun && cleos.hasBegun })
                try request(hub, from: ana, to: ben)
                #expect(await eventually { anas.friendships.count == 1 })
                _ = try hub.ask("DELETE FROM friendships")
                #expect(await eventually { anas.friendships.isEmpty })
                #expect(await cleos.friendships.isEmpty)
                #expect(await cleos.toasts.isEmpty)
                await end(running)
            }
        }

        // MARK: Expenses

        @MainActor private func expenses(
            _ hub: HubForApps, isOnline: @escaping @Sendable () -> Bool = { true }
        ) -> (Tidewire, ExpensesModel) {
            let tidewire = hub.client(ana)
            return (tidewire, ExpensesModel(tidewire, writes: hub.writes(of: ana, isOnline: isOnline), me: ana))
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
                #expect(await eventually { phone.hasBegun && tablet.hasBegun })
                #expect(await eventually { phoneLine.state == .live && tabletLine.state == .live })

                // A write without a network is shown immediately as pending, and is sent when the network returns.
                let coffee = UUID()
                try await phone.write(table, coffee, spend("coffee"))
                #expect(await phone.record(table, coffee) != nil)
                #expect(await !phone.isSynced)
                isOnline.value = true
                #expect(await eventually { tablet.record(table, coffee)?.image["title"] == "coffee" })
                #expect(await eventually { phone.isSynced })

                // A burst of changes causes few saves.
                let before = await tablet.saves
                _ = try hub.ask(
                    "INSERT INTO financial_transactions (owner_id, title, amount) SELECT '\(ana)', 'import', 1 FROM generate_series(1, 200)"
                )
                #expect(await eventually { tablet.saved.records[table]?.count == 201 })
                #expect(await tablet.saves - before < 20)

                // An older write from another device does not replace a newer one; a newer write does.
                for (date, title) in [("2001-01-01", "older"), ("2101-01-01", "newer")] {
                    _ = try hub.ask(
                        "UPDATE financial_transactions SET title = '\(title)', updated_at = '\(date)' WHERE id = '\(coffee)'"
                    )
                }
                #expect(await eventually { tablet.record(table, coffee)?.image["title"] == "newer" })

                // A soft delete and a hard delete happen while the hub is down, the token has expired and the app is in
                // the background.
                #expect(await tokenEnds(hub, tabletLine, ana))
                tabletLine.enterBackground()
                hub.kill()
                _ = try hub.ask("UPDATE financial_transactions SET deleted_at = now() WHERE id = '\(coffee)'")
                _ = try hub.ask("DELETE FROM financial_transactions WHERE title = 'import'")
                try hub.start()
                tabletLine.enterForeground()
                tabletLine.signIn(token: hub.token(ana))
                #expect(await eventually { tablet.saved.records[table]?.count == 1 })
                #expect(await tablet.record(table, coffee)?.version.isDeleted == true)
                #expect(
                    await tablet.problems.filter { $0.severity == .error }.allSatisfy {
                        Self.ofTokens.contains($0.code)
                    })
                await end(running)
            }
        }

        /// Checks that a row keeps the server's values, and does not vanish, after the server refuses a write.
        @Test func `expenses: a write that is refused leaves the row as it was`() throws {
            let hub = try HubForApps()
            try hub.start()
            let (table, id) = ("financial_transactions", UUID())
            _ = try hub.ask(
                "INSERT INTO \(table) (id, owner_id, title, amount) VALUES ('\(id)', '\(ana)', 'coffee', 3)")
            try onThisThread {
                let (_, phone) = await expenses(hub)
                let running = [onMainThread { await phone.run() }, onMainThread { await phone.sendWrites() }]
                #expect(await eventually { phone.record(table, id)?.image["title"] == "coffee" })
                try await phone.write(table, id, ["title": .null])
                #expect(await eventually { phone.problems.contains { $0.code == "NotWritten" } })
                #expect(await phone.record(table, id)?.image["title"] == "coffee")
                await end(running)
            }
        }

        // MARK: Operation map

        private struct Crew {
            let operation = UUID()

            init(_ hub: HubForApps) throws {
                for (person, name) in [(ana, "ana"), (ben, "ben"), (cleo, "cleo")] {
                    _ = try hub.ask("INSERT INTO users (id, full_name) VALUES ('\(person)', '\(name)')")
                }
                _ = try hub.ask(
                    "INSERT INTO operations (id, name, created_by) VALUES ('\(operation)', 'search', '\(ana)')")
                for person in [ana, ben] {
                    _ = try hub.ask("INSERT INTO operation_members VALUES ('\(operation)', '\(person)')")
                }
            }

            func locate(_ hub: HubForApps, _ person: UUID, _ latitude: Int, minutesAgo: Int = 0) throws {
                _ = try hub.ask(
                    """
                    INSERT INTO locations_stream (operation_id, user_id, latitude, longitude, accuracy, timestamp)
                    VALUES ('\(operation)', '\(person)', \(latitude), 0, 5, now() - interval '\(minutesAgo) min')
                    """)
            }
        }

        @MainActor private func map(
            _ hub: HubForApps, _ crew: Crew, _ me: UUID, isOnline: @escaping @Sendable () -> Bool = { true }
        ) -> (Tidewire, OperationModel) {
            let tidewire = hub.client(me)
            let writes = hub.writes(of: me, isOnline: isOnline)
            return (tidewire, OperationModel(tidewire, writes: writes, operation: crew.operation, me: me))
        }

        @Test func `map and chat: markers, trails, history, no message twice, through background, restart and rejoin`()
            throws
        {
            let hub = try HubForApps()
            let crew = try Crew(hub)
            try crew.locate(hub, ben, 1, minutesAgo: 20)
            try crew.locate(hub, ben, 2, minutesAgo: 5)
            _ = try hub.ask(
                "INSERT INTO op_messages (operation_id, user_id, content) VALUES ('\(crew.operation)', '\(ben)', 'before')"
            )
            try hub.start()
            try onThisThread {
                let isOnline = Flag()
                isOnline.value = true
                let (hers, anas) = await map(hub, crew, ana) { isOnline.value }
                let (his, bens) = await map(hub, crew, ben)
                let running = [
                    onMainThread { await anas.run() }, onMainThread { await bens.run() },
                    onMainThread { await anas.sendWrites() }, onMainThread { await bens.sendWrites() },
                ]
                // The history loads. Positions that are older than a trail's length are on no trail.
                #expect(await eventually { anas.messages.map(\.content) == ["before"] && bens.hasBegun })
                #expect(await eventually { anas.trails[ben]?.map(\.latitude) == [2] })
                #expect(await eventually { anas.online == [ana, ben] && bens.online == [ana, ben] })

                // Both people see each other. The trail has all of many rapid updates, and the marker shows the last
                // one.
                try await anas.publish(latitude: 40, longitude: 1)
                try await bens.publish(latitude: 50, longitude: 1)
                #expect(await eventually { bens.markers[ana]?.latitude == 40 && anas.markers[ben]?.latitude == 50 })
                for latitude in 51...70 { try crew.locate(hub, ben, latitude) }
                #expect(await eventually { anas.markers[ben]?.latitude == 70 })
                #expect(await anas.trails[ben]?.count == 22)

                // A message appears immediately, and only once, for both people.
                try await anas.send("on my way")
                #expect(await anas.messages.map(\.content) == ["before", "on my way"])
                #expect(await eventually { bens.messages.count == 2 })

                // When the network returns, only the newest position is sent, but all messages are, in their order.
                isOnline.value = false
                for latitude in [80.0, 81, 82] { try await anas.publish(latitude: latitude, longitude: 1) }
                for content in ["one", "two"] { try await anas.send(content) }
                hub.kill()
                try crew.locate(hub, ben, 71)
                isOnline.value = true
                his.enterBackground()
                try hub.start()
                his.enterForeground()
                #expect(await eventually { anas.markers[ben]?.latitude == 71 })
                #expect(await eventually { bens.messages.map(\.content) == ["before", "on my way", "one", "two"] })
                #expect(await eventually { bens.markers[ana]?.latitude == 82 })
                #expect(await bens.trails[ana]?.contains { $0.latitude == 81 } == false)
                // After the client has joined again, each person is shown as online without further action.
                #expect(await eventually { anas.online == [ana, ben] && bens.online == [ana, ben] })

                // A token expires and a new one is set. A person who is not a member sees nothing.
                #expect(await tokenEnds(hub, hers, ana))
                hers.signIn(token: hub.token(ana))
                let (_, cleos) = await map(hub, crew, cleo)
                let watching = onMainThread { await cleos.run() }
                #expect(await eventually { cleos.hasBegun })
                try await bens.send("three")
                #expect(await eventually { anas.messages.last?.content == "three" })
                #expect(await cleos.messages.isEmpty)
                #expect(await cleos.markers.isEmpty)
                #expect(await anas.messages.count == 5)
                #expect(
                    await anas.problems.filter { $0.severity == .error }.allSatisfy { Self.ofTokens.contains($0.code) })
                await end(running + [watching])
            }
        }

        @Test func `ten people on one map see each other, and have their messages when the app starts again`() throws {
            let hub = try HubForApps()
            let crew = try Crew(hub)
            let people = [ana, ben] + (0..<8).map { _ in UUID() }
            for person in people.dropFirst(2) {
                _ = try hub.ask("INSERT INTO users (id, full_name) VALUES ('\(person)', 'somebody')")
                _ = try hub.ask("INSERT INTO operation_members VALUES ('\(crew.operation)', '\(person)')")
            }
            try hub.start()
            try onThisThread {
                var running: [Task<Void, Never>] = []
                var models: [OperationModel] = []
                for person in people {
                    let (_, model) = await map(hub, crew, person)
                    running += [onMainThread { await model.run() }, onMainThread { await model.sendWrites() }]
                    models.append(model)
                }
                let all = models
                let begun = await eventually { all.allSatisfy(\.hasBegun) }
                let problems = await MainActor.run { all.map(\.problems) }
                #expect(begun, "\(problems)")
                for model in all { try await model.publish(latitude: 1, longitude: 2) }
                try await all[0].send("here")
                #expect(
                    await eventually {
                        all.allSatisfy { model in people.allSatisfy { model.trails[$0]?.count == 1 } }
                    })
                #expect(await eventually { all.allSatisfy { $0.messages.map(\.content) == ["here"] } })
                await end(running)

                _ = try hub.ask(
                    "INSERT INTO op_messages (operation_id, user_id, content) VALUES ('\(crew.operation)', '\(ben)', 'away')"
                )
                let (_, again) = await map(hub, crew, ana)
                let anew = onMainThread { await again.run() }
                #expect(await eventually { again.messages.map(\.content) == ["here", "away"] })
                await end([anew])
            }
        }

        // MARK: Social feed

        @MainActor private func feed(
            _ hub: HubForApps, _ me: UUID, isOnline: @escaping @Sendable () -> Bool = { true }
        ) -> (Tidewire, FeedModel) {
            let tidewire = hub.client(me)
            return (tidewire, FeedModel(tidewire, writes: hub.writes(of: me, isOnline: isOnline), me: me))
        }

        private func post(_ hub: HubForApps, _ author: UUID, _ caption: String) throws -> UUID {
            let id = UUID()
            _ = try hub.ask(
                "INSERT INTO posts (id, author, caption, media_key) VALUES ('\(id)', '\(author)', '\(caption)', 'm')")
            return id
        }

        @Test
        func `feed: banner, counts that never double, follows that count at once, through a kill and a token's end`()
            throws
        {
            let hub = try HubForApps()
            for (person, name) in [(ana, "ana"), (ben, "ben"), (cleo, "cleo")] {
                _ = try hub.ask("INSERT INTO profiles (user_id, username) VALUES ('\(person)', '\(name)')")
            }
            _ = try hub.ask("INSERT INTO follows VALUES ('\(ana)', '\(ben)')")
            let first = try post(hub, ben, "first")
            let cleos = try post(hub, cleo, "of cleo")
            try hub.start()
            try onThisThread {
                let isOnline = Flag()
                isOnline.value = true
                let (line, model) = await feed(hub, ana) { isOnline.value }
                let (_, bens) = await feed(hub, ben)
                let running = [
                    onMainThread { await model.run() }, onMainThread { await model.sendWrites() },
                    onMainThread { await bens.run() },
                ]
                #expect(await eventually { model.feed.map(\.id) == [first] && model.following == [ben] })
                #expect(await eventually { bens.feed.map(\.id) == [first] })

                // New posts of others wait behind the banner. The user's own posts do not wait, and posts of strangers
                // never arrive.
                let second = try post(hub, ben, "second")
                _ = try post(hub, cleo, "ignored")
                #expect(await eventually { model.banner == 1 })
                #expect(await model.feed.map(\.id) == [first])
                await model.showNewPosts()
                #expect(await model.feed.map(\.id) == [second, first])
                #expect(await model.banner == 0)
                let own = try post(hub, ana, "mine")
                #expect(await eventually { model.feed.first?.id == own })
                #expect(await model.banner == 0)

                // Other people's likes and comments are counted. The user's own like is counted once, whichever report
                // arrives first.
                _ = try hub.ask("INSERT INTO likes VALUES ('\(first)', '\(cleo)')")
                #expect(await eventually { model.reactions.likeCount(first) == 1 })
                #expect(await !model.reactions.isLiked(first))
                for _ in 0..<3 { try await model.reactions.toggleLike(first) }
                #expect(await model.reactions.isLiked(first))
                #expect(await model.reactions.likeCount(first) == 2)
                #expect(await eventually { (try? hub.ask("SELECT 1 FROM likes").count) == 2 })
                try await model.reactions.comment(first, "nice")
                #expect(await model.reactions.comments(first).map(\.body) == ["nice"])
                _ = try hub.ask("INSERT INTO comments (post_id, user_id, body) VALUES ('\(first)', '\(ben)', 'thanks')")
                #expect(await eventually { model.reactions.comments(first).count == 2 })

                // The token has expired and the hub is down. Changes made in this time arrive with the next token.
                #expect(await tokenEnds(hub, line, ana))
                _ = try hub.ask("DELETE FROM likes WHERE user_id = '\(cleo)'")
                isOnline.value = false
                try await model.reactions.comment(first, "from the tunnel")
                line.enterBackground()
                hub.kill()
                let third = try post(hub, ben, "third")
                _ = try hub.ask("DELETE FROM comments WHERE body = 'thanks'")
                try hub.start()
                line.enterForeground()
                line.signIn(token: hub.token(ana))
                isOnline.value = true
                #expect(await eventually { model.banner == 1 && model.reactions.likeCount(first) == 1 })
                // Comments that were written without a network appear exactly once for both people.
                #expect(
                    await eventually {
                        model.reactions.comments(first).map(\.body).sorted() == ["from the tunnel", "nice"]
                    })
                #expect(
                    await eventually {
                        bens.reactions.comments(first).map(\.body).sorted() == ["from the tunnel", "nice"]
                    })
                #expect(await model.reactions.isLiked(first))

                // A new follow takes effect immediately, without a restart of the app.
                _ = try hub.ask("INSERT INTO follows VALUES ('\(ana)', '\(cleo)')")
                #expect(await eventually { model.feed.contains { $0.id == cleos } })
                _ = try hub.ask("DELETE FROM follows WHERE followee_id = '\(ben)'")
                #expect(await eventually { !model.feed.contains { $0.id == third } && model.following == [cleo] })
                #expect(await model.feed.allSatisfy { $0.author != ben })
                _ = try post(hub, ben, "of one who is not followed any more")
                let last = try post(hub, cleo, "last")
                #expect(await eventually { model.banner == 1 })
                await model.showNewPosts()
                #expect(await model.feed.first?.id == last)
                #expect(
                    await model.problems.filter { $0.severity == .error }.allSatisfy { Self.ofTokens.contains($0.code) }
                )
                await end(running)
            }
        }

        @Test func `whom one follows is seen without a new start of the app, and whom one leaves no more`() throws {
            let hub = try HubForApps()
            for (person, name) in [(ana, "ana"), (ben, "ben")] {
                _ = try hub.ask("INSERT INTO profiles (user_id, username) VALUES ('\(person)', '\(name)')")
            }
            // These posts are older than the event log. So the log has no row from which the hub could decide which
            // clients may see the delete.
            let (old, kept) = (try post(hub, ben, "old"), try post(hub, ben, "kept"))
            try hub.start()
            try onThisThread {
                let (_, model) = await feed(hub, ana)
                let running = [onMainThread { await model.run() }]
                #expect(await eventually { model.hasBegun && model.feed.isEmpty })
                _ = try hub.ask("INSERT INTO follows VALUES ('\(ana)', '\(ben)')")
                #expect(await eventually { Set(model.feed.map(\.id)) == [old, kept] })
                _ = try hub.ask("DELETE FROM posts WHERE id = '\(old)'")
                #expect(await eventually { model.feed.map(\.id) == [kept] })
                _ = try hub.ask("DELETE FROM follows")
                #expect(await eventually { model.feed.isEmpty && model.following.isEmpty })
                await end(running)
            }
        }

        // MARK: Listings

        @MainActor private func office(
            _ hub: HubForApps, _ me: UUID, isOnline: @escaping @Sendable () -> Bool = { true }
        ) -> (Tidewire, ListingsModel) {
            let tidewire = hub.client(me)
            return (tidewire, ListingsModel(tidewire, writes: hub.writes(of: me, isOnline: isOnline), me: me))
        }

        @Test func `listings: one note and not two, claims, inbox, deletes, nothing fetched by hand, through a kill`()
            throws
        {
            let hub = try HubForApps()
            for (person, name, job) in [(ana, "ana", "operations"), (ben, "ben", "marketing")] {
                _ = try hub.ask("INSERT INTO staff (id, name, job) VALUES ('\(person)', '\(name)', '\(job)')")
            }
            _ = try hub.ask(
                "INSERT INTO listings (id, address, assignee) VALUES ('l1', 'Main Street', '\(ana)'), ('l2', 'Park Lane', NULL)"
            )
            _ = try hub.ask("INSERT INTO agent_tasks (id, title) VALUES ('t1', 'photos'), ('t2', 'sign')")
            _ = try hub.ask(
                "INSERT INTO activities (id, listing_id, name, task_category) VALUES ('a1', 'l1', 'flyer', 'marketing')"
            )
            try hub.start()
            try onThisThread {
                let isOnline = Flag()
                isOnline.value = true
                let (hers, anas) = await office(hub, ana) { isOnline.value }
                let (his, bens) = await office(hub, ben)
                let running = [
                    onMainThread { await anas.run() }, onMainThread { await bens.run() },
                    onMainThread { await anas.sendWrites() }, onMainThread { await bens.sendWrites() },
                ]
                #expect(await eventually { anas.hasBegun && bens.hasBegun })
                #expect(await eventually { anas.listings.rows.count == 2 && anas.myListings.map(\.id) == ["l1"] })
                #expect(await anas.inbox.count == 2)
                #expect(await anas.tasks.rows.count == 2)

                // Both people open the detail screen. Each person sees only the activities of the job of that person.
                let screens = [onMainThread { await anas.open("l1") }, onMainThread { await bens.open("l1") }]
                #expect(await eventually { bens.detail?.activities.rows.map(\.id) == ["a1"] })
                #expect(await eventually { anas.detail?.notes.hasBegun == true && bens.detail?.notes.hasBegun == true })
                #expect(await anas.detail?.activities.rows.isEmpty == true)
                try await anas.detail?.addNote("keys are with the neighbour")
                #expect(await anas.detail?.notes.rows.count == 1)
                #expect(await eventually { bens.detail?.notes.rows.count == 1 })
                _ = try hub.ask("UPDATE listing_notes SET content = 'keys are here'")
                #expect(await eventually { anas.detail?.notes.rows.map(\.content) == ["keys are here"] })

                // The other person immediately sees that the task was claimed: it is no longer open and leaves the
                // list.
                let task = try #require(await anas.tasks.rows.first)
                try await anas.claim(task)
                #expect(await anas.tasks.rows.first?.status == .claimed)
                #expect(await eventually { bens.tasks.rows.map(\.id) == ["t2"] })
                try await anas.acknowledge(#require(await anas.listings.rows.first))
                #expect(await anas.inbox.map(\.id) == ["l2"])

                // The app writes offline, the hub is killed, and other people make changes.
                isOnline.value = false
                try await anas.detail?.addNote("written in the cellar")
                hub.kill()
                _ = try hub.ask("DELETE FROM listing_notes WHERE content = 'keys are here'")
                _ = try hub.ask("INSERT INTO listings (id, address) VALUES ('l3', 'Station Road')")
                _ = try hub.ask("DELETE FROM listings WHERE id = 'l2'")
                isOnline.value = true
                hers.enterBackground()
                try hub.start()
                hers.enterForeground()
                // Ben's token expires as soon as the client is connected again. The missed changes arrive with the next
                // token.
                #expect(await tokenEnds(hub, his, ben))
                his.signIn(token: hub.token(ben))
                #expect(await eventually { bens.detail?.notes.rows.map(\.content) == ["written in the cellar"] })
                #expect(await eventually { anas.detail?.notes.rows.map(\.content) == ["written in the cellar"] })
                #expect(
                    await eventually { anas.listings.rows.map(\.id) == ["l1", "l3"] && anas.inbox.map(\.id) == ["l3"] })

                // Leaving a screen closes it and its subscription.
                for screen in screens { screen.cancel() }
                #expect(await eventually { anas.detail == nil })
                #expect(await anas.problems.filter { $0.severity == .error }.isEmpty)
                #expect(
                    await bens.problems.filter { $0.severity == .error }.allSatisfy { Self.ofTokens.contains($0.code) })
                await end(running)
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

import Change
import Foundation
import History
import Server
import System
import TestSupport
import Testing

@testable import Settings

/// Tests that compare the ledger (the log's record of clients) with the changes that the clients received.
@Suite(.inChain(minutes: 10), .serialized) struct LedgerTests {
    private static let tables = """
        CREATE TABLE notes (id int PRIMARY KEY, owner uuid NOT NULL, room int NOT NULL);
        ALTER TABLE notes REPLICA IDENTITY FULL;
        GRANT SELECT ON notes TO READER;
        ALTER TABLE notes ENABLE ROW LEVEL SECURITY;
        CREATE POLICY own ON notes FOR SELECT TO READER USING (owner = auth.uid());
        """

    /// Client of the test, with the changes that it received.
    private final class Listener {
        let caller: Caller
        let user: Int
        let room: Int?
        let topic: String
        let ref: String
        var heard: [Int] = []
        var isThere = true

        init(_ caller: Caller, user: Int, room: Int?, topic: String, ref: String) {
            (self.caller, self.user, self.room, self.topic, self.ref) = (caller, user, room, topic, ref)
        }

        func leave() throws {
            isThere = false
            try caller.push(topic, "phx_leave", "{}", joinRef: ref)
            try caller.fence()
            heard += caller.takeUnheard().filter { $0.event == "postgres_changes" }.compactMap(\.id)
        }

        func awaitChange(_ id: Int) throws {
            heard.append(try caller.first { $0.event == "postgres_changes" && $0.id == id }.id ?? -1)
        }

        func isFor(_ owner: Int, _ place: Int) -> Bool { owner == user && room.map { $0 == place } ?? true }
    }

    private static func book(_ stage: GatewayStage) throws -> AttendanceBook {
        try AttendanceBook(HistoryLog(directory: DiskDirectory(stage.dataDirectory + "/log"), masking: .nothing))
    }

    @Test(arguments: seeds(2), ["ranges", "full"])
    func `who is said to have been sent a change got it, and nobody else`(_ seed: Seed, _ scope: String) throws {
        var random = SeededRandom(seed: seed)
        let stage = try GatewayStage(Self.tables, publication: "FOR TABLE notes", [(Setting(\.ledger), scope)])
        defer { stage.stop() }
        var listeners: [Listener] = []
        var rows: [(id: Int, owner: Int, room: Int)] = []
        for step in 0..<80 {
            switch random.next() % 6 {
            case 0 where listeners.count < 12:
                let (user, room) = (Int(random.next() % 3), random.next() % 2 == 0 ? nil : Int(random.next() % 2))
                let caller = try stage.caller()
                let topic = "realtime:t\(step)"
                let ref = try caller.subscribe(
                    topic, [binding("notes", "INSERT", filter: room.map { "room=eq.\($0)" })],
                    token: stage.token(of: user))
                listeners.append(Listener(caller, user: user, room: room, topic: topic, ref: ref))
            case 1:
                guard let leaving = listeners.filter(\.isThere).randomElement(using: &random) else { continue }
                try leaving.leave()
            default:
                let row = (id: step, owner: Int(random.next() % 3), room: Int(random.next() % 2))
                rows.append(row)
                try stage.run(
                    "INSERT INTO notes VALUES (\(row.id), '\(GatewayStage.user(row.owner))', \(row.room))")
                // In the other cases, clients join and leave before the log has the earlier commits.
                if random.next() % 4 == 0 { try stage.awaitLog() }
            }
        }
        // On a busy machine the hub may have sent nothing yet, so every connected client waits for one more row.
        let last = (0..<6).map { (id: 80 + $0, owner: $0 % 3, room: $0 / 3) }
        for row in last {
            rows.append(row)
            try stage.run("INSERT INTO notes VALUES (\(row.id), '\(GatewayStage.user(row.owner))', \(row.room))")
        }
        try stage.awaitLog()
        for listener in listeners where listener.isThere {
            if let awaited = last.last(where: { listener.isFor($0.owner, $0.room) }) {
                try listener.awaitChange(awaited.id)
            }
            try listener.leave()
        }
        #expect(listeners.reduce(0) { $0 + $1.heard.count } > 0)
        #expect(
            try eventually { try Self.book(stage).all.filter { $0.end != .none }.count == listeners.count })
        let book = try Self.book(stage)
        let log = HistoryLog(directory: try DiskDirectory(stage.dataDirectory + "/log"), masking: .nothing)
        var offsets: [Int: (offset: UInt64, time: Int64)] = [:]
        var records: [Int: DeliveryRecord] = [:]
        var reader = try HistoryReader(log, HistoryQuery(from: nil, to: nil))
        while let item = try reader.next() {
            guard case .change(let change) = item, change.relation?.relation.name == "notes",
                let id = change.key.first?.value.plainText.flatMap({ Int($0) })
            else { continue }
            offsets[id] = (change.offset, change.time ?? 0)
            records[id] = try DeliveryRecord(of: change, in: log)
        }
        for listener in listeners {
            let attendance = try #require(
                book.all.first { $0.joined.note.topic == Array(listener.topic.utf8) }, "\(listener.topic)")
            #expect(attendance.joined.note.subject == Array(GatewayStage.user(listener.user).utf8))
            // With a record of each delivery, no filter and no policy needs to be evaluated.
            for row in rows where scope == "full" {
                let finding = try #require(records[row.id]).finding(attendance, of: book)
                let isHeard = listener.heard.contains(row.id)
                if case .sent = finding {
                    #expect(isHeard, "\(listener.topic), row \(row.id)")
                } else {
                    #expect(!isHeard && finding != .unknown, "\(listener.topic), row \(row.id): \(finding)")
                }
            }
            for row in rows where listener.isFor(row.owner, row.room) {
                let (offset, time) = try #require(offsets[row.id])
                let isSent =
                    switch attendance.reach(of: offset, committed: time) {
                    case .sent, .sentLater: true
                    case .notYet, .endedBefore, .unknown: false
                    }
                #expect(isSent == listener.heard.contains(row.id), "\(listener.topic), row \(row.id), @\(offset)")
            }
        }
    }

    @Test func `a hub that is stopped writes down how far everybody had come`() throws {
        let stage = try GatewayStage(Self.tables, publication: "FOR TABLE notes")
        let caller = try stage.caller()
        try caller.subscribe("realtime:a", [binding("notes")], token: stage.token(of: 1))
        try stage.run("INSERT INTO notes VALUES (1, '\(GatewayStage.user(1))', 1)")
        #expect(try caller.ids(1) == [1])
        stage.stop()
        guard case .left(let before, _, _, _) = try Self.book(stage).all.first?.end else {
            Issue.record("its end is not in the ledger: \(try Self.book(stage).all)")
            return
        }
        #expect(before >= 1)
    }

    /// Checks that the ledger contains each end of a channel with its cause.
    @Test func `why a channel ended is recorded`() throws {
        let stage = try GatewayStage(Self.tables, publication: "FOR TABLE notes")
        func join(_ topic: String, _ token: String? = nil) throws -> (caller: Caller, ref: String) {
            let caller = try stage.caller()
            let ref = try caller.subscribe(
                "realtime:\(topic)", [binding("notes")], token: token ?? stage.token(of: 1))
            return (caller, ref)
        }
        let left = try join("left")
        try left.caller.push("realtime:left", "phx_leave", "{}", joinRef: left.ref)
        let again = try join("again")
        try again.caller.subscribe("realtime:again", [binding("notes")], token: stage.token(of: 1))
        let expired = try join("expired", stage.token(lasting: 10))
        let refused = try join("refused")
        try refused.caller.push(
            "realtime:refused", "access_token", #"{"access_token":"\#(stage.token("postgres"))"}"#, joinRef: refused.ref
        )
        let violating = try join("violating")
        try violating.caller.send([0x83, 0x80, 0, 0, 0, 0])
        let closing = try join("closing")
        try closing.caller.send([0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe9])
        let gone = try join("gone")
        gone.caller.hangUp()
        let stopped = try join("stopped")
        func reason(_ topic: String) throws -> String? {
            for attendance in try Self.book(stage).all
            where attendance.joined.note.topic == Array("realtime:\(topic)".utf8) {
                if case .left(_, _, _, let reason) = attendance.end { return reason }
            }
            return nil
        }
        let endings = [
            "left": "the client left", "again": "the client joined the topic again",
            "expired": "the hub closed the channel (Token has expired", "refused": "the hub closed the channel (",
            "violating": "the hub closed the socket (", "closing": "the client closed the socket, code 1001",
        ]
        for (topic, wanted) in endings {
            #expect(try eventually { try reason(topic)?.hasPrefix(wanted) == true }, "\(topic)")
        }
        let lost = ["the client closed the connection", "the connection was reset"]
        #expect(try eventually { try reason("gone").map(lost.contains) == true })
        stage.stop()
        #expect(try reason("stopped") == "the hub closed the socket (the server restarts)")
        // Callers that are released earlier would close their sockets, and that would become the cause.
        withExtendedLifetime([left, again, expired, refused, violating, closing, stopped].map(\.caller)) {}
    }

    /// Checks that the ledger contains refused sockets, joins and requests with their causes, if the token names a
    /// user.
    @Test func `who was refused is recorded with the cause, once a minute`() throws {
        let stage = try GatewayStage(Self.tables, publication: "FOR TABLE notes")
        defer { stage.stop() }
        let user = GatewayStage.user(7)
        func token(_ expiry: Int = 1_700_000_000, role: String? = nil) -> String {
            stage.token(claims: #"{"role":"\#(role ?? stage.reader)","exp":\#(expiry),"sub":"\#(user)"}"#)
        }
        func status(_ request: String) throws -> String {
            let caller = try Caller(port: stage.hub.port)
            try caller.send(request)
            return try caller.answer().status
        }
        let host = "HTTP/1.1\r\nHost: h\r\n"
        for _ in 0..<2 { #expect(try status(Caller.upgrade(token())).contains("401")) }
        // The hub cannot know whose token this is.
        #expect(try status(Caller.upgrade(token() + "x")).contains("401"))
        #expect(try status(Caller.upgrade(token(4_000_000_000, role: "postgres"))).contains("401"))
        #expect(
            try status("GET /realtime/v1/api/changes?table=notes&apikey=\(token()) \(host)\r\n").contains("401"))
        let bearer = "Authorization: Bearer \(token())\r\n"
        let post = "POST /realtime/v1/api/broadcast \(host)\(bearer)Content-Length: 2\r\n\r\n{}"
        #expect(try status(post).contains("401"))
        let caller = try stage.caller()
        func refuse(_ topic: String, _ token: String, more: String = "") throws {
            let ref = try caller.push(topic, "phx_join", Caller.join([binding("notes")], token: token, more: more))
            let reply = try caller.first { $0.topic == topic && $0.ref == ref }
            #expect(reply.status == "error")
        }
        // The texts of these refusals contain different numbers of seconds.
        for expiry in [1_700_000_000, 1_700_000_001] { try refuse("realtime:late", token(expiry)) }
        try refuse("realtime:odd", stage.token(of: 7), more: #","broadcast":{"tidewire":{"resume":"x"}}"#)

        let log = HistoryLog(directory: try DiskDirectory(stage.dataDirectory + "/log"), masking: .nothing)
        func refusals() throws -> [String] {
            var found: [String] = []
            var query = LedgerQuery()
            query.subject = user
            try log.ledger(query) { recorded in
                let note = recorded.note
                guard note.event == .refused else { return }
                found.append(
                    String(decoding: note.topic, as: UTF8.self) + " " + String(decoding: note.reason, as: UTF8.self))
            }
            return found
        }
        let wanted = [
            " 401: Token has expired", " 401: The role of the token may not be used",
            "http:changes TokenRefused: Token has expired", "http:broadcast 401: Token has expired",
            "realtime:late InvalidJWTToken: Token has expired", "realtime:odd UnableToResume: ",
        ]
        #expect(try eventually { try refusals().count >= wanted.count })
        #expect(try refusals().count == wanted.count)
        for (found, wanted) in zip(try refusals(), wanted) { #expect(found.hasPrefix(wanted), "\(found)") }

        // A user who was refused before a change is listed for the change, until the user joins.
        func change(_ id: Int) throws -> History.RecordedChange {
            try stage.run("INSERT INTO notes VALUES (\(id), '\(user)', 1)")
            try stage.awaitLog()
            var reader = try HistoryReader(log, HistoryQuery(from: nil, to: nil))
            var last: History.RecordedChange?
            while let item = try reader.next() { if case .change(let change) = item { last = change } }
            return try #require(last)
        }
        let missed = try change(1)
        for subject in [user, nil] {
            #expect(try AttendanceBook(log, at: missed, of: subject).refusals.count == 5)
        }
        #expect(try AttendanceBook(log, at: missed, of: GatewayStage.user(8)).refusals.isEmpty)
        try caller.subscribe("realtime:late", [binding("notes")], token: stage.token(of: 7))
        let heard = try change(2)
        #expect(try caller.ids(1) == [2])
        #expect(
            try eventually {
                try AttendanceBook(log, at: heard).refusals.map { String(decoding: $0.note.topic, as: UTF8.self) }
                    == ["http:changes", "http:broadcast", "realtime:odd"]
            })
    }

    @Test func `who stays while the log goes on is noted again, as it was joined`() throws {
        let stage = try GatewayStage(
            Self.tables, publication: "FOR TABLE notes", [(Setting(\.positionInterval), "1s")])
        defer { stage.stop() }
        let caller = try stage.caller()
        try caller.subscribe("realtime:a", [binding("notes")], token: stage.token(of: 1))
        try stage.run(
            "INSERT INTO notes SELECT n, '\(GatewayStage.user(2))', 1 FROM generate_series(1, 3000) n")
        let log = HistoryLog(directory: try DiskDirectory(stage.dataDirectory + "/log"), masking: .nothing)
        func notes(_ event: LedgerNote.Event) throws -> [LedgerNote] {
            var found: [LedgerNote] = []
            try log.ledger(LedgerQuery()) { if $0.note.event == event { found.append($0.note) } }
            return found
        }
        #expect(try eventually { try !notes(.stands).isEmpty })
        let (join, stand) = (try #require(try notes(.joined).first), try #require(try notes(.stands).first))
        #expect(stand.session == join.session && stand.channel == join.channel && stand.offset == join.offset)
        #expect(stand.bindings == join.bindings && stand.claims == join.claims && stand.subject == join.subject)
        #expect(stand.time > join.time)
    }

    @Test func `refusals, other claims and what is kept of them`() throws {
        let stage = try GatewayStage(Self.tables, publication: "FOR TABLE notes")
        defer { stage.stop() }
        let caller = try stage.caller()
        let later = Int(Date().timeIntervalSince1970) + 3600
        let secret = #""email":"planted@example.org""#
        func claims(_ level: Int) -> String {
            #"{"role":"\#(stage.reader)","exp":\#(later),"sub":"\#(GatewayStage.user(1))","app_metadata":{"l":\#(level)},\#(secret)}"#
        }
        try caller.subscribe("realtime:a", [binding("notes")], token: stage.token(claims: claims(1)))
        try caller.push(
            "realtime:a", "access_token", #"{"access_token":"\#(stage.token(claims: claims(2)))"}"#)
        #expect(try eventually { try Self.book(stage).all.first?.renewals.count == 1 })
        let attendance = try #require(try Self.book(stage).all.first)
        #expect(
            String(decoding: attendance.joined.note.bindings, as: UTF8.self)
                == #"[{"event":"*","schema":"public","table":"notes"}]"#)
        #expect(attendance.renewals[0].note.otherClaims == Array("email".utf8))
        let kept = String(decoding: attendance.renewals[0].note.claims, as: UTF8.self)
        #expect(kept.contains(#""app_metadata":{"l":2}"#) && !kept.contains("planted"))
        // No other file contains the value either.
        let directory = stage.dataDirectory + "/log"
        for name in try FileManager.default.contentsOfDirectory(atPath: directory) {
            let bytes = try Data(contentsOf: URL(fileURLWithPath: directory + "/" + name))
            #expect(bytes.range(of: Data("planted@".utf8)) == nil, "\(name)")
        }
    }

    @Test(arguments: [("exceptions", false), ("off", false), ("ranges", true), ("full", true)])
    func `keeps as much as it is asked to`(scope: String, isKept: Bool) throws {
        let stage = try GatewayStage(Self.tables, publication: "FOR TABLE notes", [(Setting(\.ledger), scope)])
        defer { stage.stop() }
        let caller = try stage.caller()
        let ref = try caller.subscribe("realtime:a", [binding("notes")], token: stage.token(of: 1))
        try stage.run("INSERT INTO notes VALUES (1, '\(GatewayStage.user(1))', 1)")
        #expect(try caller.ids(1) == [1])
        try caller.push("realtime:a", "phx_leave", "{}", joinRef: ref)
        try caller.fence()
        try stage.run("INSERT INTO notes VALUES (2, '\(GatewayStage.user(1))', 1)")
        try stage.awaitLog()
        let done = try eventually { try Self.book(stage).all.isEmpty == !isKept }
        #expect(done)
    }
}

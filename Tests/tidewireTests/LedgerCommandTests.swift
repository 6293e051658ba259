import Bytes
import Change
import Console
import System
import TestSupport
import Testing

@testable import History
@testable import tidewire

private let commands: [any Command] = [EventCommand(), WhoCommand(), UserCommand(), SessionCommand()]

/// Sample log with a ledger. Two clients listened to the table, one of them left, and a third client was refused.
private struct LedgerStage {
    let log: TemporaryLog
    static let ana = "00000000-0000-4000-8000-00000000000a"
    static let ben = "00000000-0000-4000-8000-00000000000b"
    static let cid = "00000000-0000-4000-8000-00000000000c"

    /// Creates the log.
    ///
    /// - Parameter isFull: true to record each delivery. The change at 13 was sent to Ana only.
    init(
        isKilled: Bool = false, isFull: Bool = false, isScarce: Bool = false, isBenFirst: Bool = false,
        isRefusedBefore: Bool = false, otherSessions: Int = 0
    ) throws {
        var notes: [LedgerNote] = []
        func note(
            _ event: LedgerNote.Event, _ session: UInt64, _ user: String, offset: UInt64 = 0, received: UInt64 = 0,
            reason: String = ""
        ) -> LedgerNote {
            var note = LedgerNote(
                event, time: 1795255491_700_000 + Int64(notes.count), session: session, channel: 1, offset: offset,
                received: received)
            note.topic = Array("realtime:notes".utf8)
            note.role = Array("authenticated".utf8)
            note.subject = Array(user.utf8)
            note.reason = Array(reason.utf8)
            note.isRecorded = isFull && event == .joined
            if event == .joined || event == .refused {
                note.bindings = Array(#"[{"event":"*","schema":"public","table":"fullrep"}]"#.utf8)
                let mail = user == Self.ana ? "me@x" : "another@x"
                note.otherClaims = Array("phone".utf8)
                note.claims = Array(#"{"role":"authenticated","sub":"\#(user)","email":"\#(mail)"}"#.utf8)
            }
            return note
        }
        notes.append(note(.joined, 0xa1, Self.ana, offset: 12))
        notes.append(note(.joined, 0xb1, Self.ben, offset: 12))
        if isBenFirst { notes.swapAt(0, 1) }
        for session in 0..<otherSessions { notes.append(note(.joined, 0xa2 + UInt64(session), Self.ana, offset: 12)) }
        notes.append(note(.refused, 0xc1, "", reason: "Unauthorized: no"))
        notes.append(note(.left, 0xb1, Self.ben, offset: 13, received: 12, reason: "its socket ended"))
        if isFull {
            notes.append(LedgerNote(.reached, time: 1795255491_700_900, session: 0, channel: 0xa1, offset: 17))
            notes.append(Self.delivered())
        }
        if isScarce {
            notes.append(
                LedgerNote(.missed, time: 1795255491_750_000, session: 0, channel: 0xa1, offset: 2, received: 7))
        }
        if isKilled { notes.append(note(.began, 0, "")) }
        var lines = export.split(separator: "\n").map(String.init)
        let end = lines.removeLast()
        let offset = end.split(separator: ",")[1].split(separator: ":")[1]
        lines.append(Self.entry(notes, at: offset, lsn: "0/153F308"))
        if isRefusedBefore {
            var early = note(.refused, 0xd1, Self.cid, reason: "401: Token has expired")
            early.topic = []
            lines.insert(Self.entry([early], at: "12", lsn: "0/153EF00"), at: 1)
        }
        lines.append(#"{"type":"end","offset":\#(offset),"lines":\#(lines.count + 1)}"#)
        log = try TemporaryLog(lines.joined(separator: "\n"))
    }

    private static func entry(_ notes: [LedgerNote], at offset: some StringProtocol, lsn: String) -> String {
        var payload = ByteWriter()
        LedgerCodec.encode(notes, to: &payload)
        var hex = ByteWriter()
        Hex.append(payload.bytes, to: &hex)
        return
            #"{"type":"entry","offset":\#(offset),"kind":7,"changes":0,"continued":false,"lsn":"\#(lsn)","time":"2026-11-21T10:04:51.800000Z","payload":"\#(hex.bytes.text)"}"#
    }

    private static func delivered() -> LedgerNote {
        var writer = DeliveryBlockWriter()
        writer.beginTurn(at: 1795255491_710_000, changes: 2)
        let ana = [writer.seat(session: 0xa1, channel: 1)]
        writer.append(13, to: ana.span)
        writer.append(14, to: ana.span)
        var note = LedgerNote(.delivered, time: writer.began, session: 0, channel: 0xa1, offset: 13, received: 15)
        note.deliveries = writer.take()
        return note
    }

    func run(_ words: String...) async -> Run {
        await tidewireTests.run(words + ["--log", log.path], commands: commands)
    }
}

@Suite(.within(minutes: 5)) struct LedgerCommandTests {
    @Test func `who says who was sent a change, and who had gone`() async throws {
        let stage = try LedgerStage()
        defer { stage.log.remove() }
        let short = await stage.run("who", "@13", "--recorded")
        #expect(short.exitCode == .ok && !short.output.contains(LedgerStage.ben), "\(short)")
        #expect(short.output.contains("Not listed (see --gone): 1 client that had gone before the change."), "\(short)")
        let result = await stage.run("who", "@13", "--recorded", "--gone")
        #expect(result.exitCode == .ok, "\(result.errors)")
        let lines = result.output.split(separator: "\n").map(String.init)
        #expect(lines[0].hasPrefix("@13 UPDATE public.fullrep key 5, committed 2026-11-21 10:04:51.704 UTC, xid 742"))
        #expect(lines[2].hasPrefix("sent") && lines[2].contains(LedgerStage.ana), "\(result.output)")
        #expect(lines[2].contains("00000000000000a1/1"))
        #expect(lines[3].hasPrefix("had gone") && lines[3].contains("its socket ended at"), "\(result.output)")
        #expect(lines.last?.contains("Filters and policies were not evaluated") == true)
        let unasked = await stage.run("who", "@13")
        #expect(unasked.output.contains("the log does not have the policies of then, and no database is configured"))
        let earlier = await stage.run("who", "12", "--recorded", "--json", "--user", LedgerStage.ben)
        #expect(
            earlier.output.hasPrefix(#"{"outcome":"sent","reason":"","#)
                && earlier.output.split(separator: "\n").count == 1, "\(earlier.output)")
    }

    @Test func `who shows the outcomes that are asked for`() async throws {
        let stage = try LedgerStage(isRefusedBefore: true)
        defer { stage.log.remove() }
        func users(_ words: String...) async -> [String] {
            let result = await tidewireTests.run(
                ["who", "@13", "--recorded", "--log", stage.log.path] + words, commands: commands)
            #expect(result.exitCode == .ok, "\(result.errors)")
            return [LedgerStage.ana, LedgerStage.ben, LedgerStage.cid].filter { result.output.contains($0) }
        }
        #expect(await users("--outcome", "sent") == [LedgerStage.ana])
        #expect(await users("--outcome", "had gone") == [LedgerStage.ben])
        #expect(await users("--outcome", "ended_before,refused", "--json") == [LedgerStage.ben, LedgerStage.cid])
        #expect(await users("--outcome", "sent", "--outcome", "refused") == [LedgerStage.ana, LedgerStage.cid])
        #expect(await users("--json") == [LedgerStage.ana, LedgerStage.ben, LedgerStage.cid])
        #expect(await users("--outcome", "not-for-it").isEmpty)
        let wrong = await stage.run("who", "@13", "--recorded", "--outcome", "lost")
        #expect(
            wrong.exitCode == .usage && wrong.errors.contains("--outcome lost: expected one or more of received, sent"))
    }

    @Test func `who has the clients of a user together, and sessions that differ in nothing else on one line`()
        async throws
    {
        let stage = try LedgerStage(otherSessions: 3)
        defer { stage.log.remove() }
        let result = await stage.run("who", "@13", "--recorded")
        let lines = result.output.split(separator: "\n").filter { $0.contains(LedgerStage.ana) }
        #expect(lines.count == 1 && lines[0].contains("00000000000000a1/1 and 3 more"), "\(result.output)")
        let all = await stage.run("who", "@13", "--recorded", "-o", "csv")
        #expect(all.output.split(separator: "\n").count { $0.contains(LedgerStage.ana) } == 4, "\(all.output)")
    }

    @Test func `who lists users who were refused before the change`() async throws {
        let stage = try LedgerStage(isRefusedBefore: true)
        defer { stage.log.remove() }
        let result = await stage.run("who", "@13", "--recorded")
        let line = result.output.split(separator: "\n").first { $0.hasPrefix("refused") }
        #expect(
            line?.contains(LedgerStage.cid) == true && line?.contains("401: Token has expired at 2026-11-21") == true,
            "\(result.output)")
        let alone = await stage.run("who", "@13", "--recorded", "--user", LedgerStage.cid)
        #expect(alone.exitCode == .notFound)
        #expect(
            (alone.output + alone.errors).contains(
                "user \(LedgerStage.cid): recorded: at 2026-11-21 10:04:51.700 the hub refused the socket: 401: Token has expired"
            ), "\(alone.output)\(alone.errors)")
        let json = await stage.run("who", "@13", "--recorded", "--json", "--user", LedgerStage.cid)
        #expect(
            json.output.hasPrefix(
                #"{"outcome":"refused","reason":"401: Token has expired","user":"\#(LedgerStage.cid)""#),
            "\(json.output)")
    }

    @Test func `the limit of who leaves out those who had gone before those who were there`() async throws {
        let stage = try LedgerStage(isBenFirst: true)
        defer { stage.log.remove() }
        let result = await stage.run("who", "@13", "--recorded", "--limit", "1")
        #expect(result.exitCode == .ok, "\(result.errors)")
        #expect(result.output.contains(LedgerStage.ana) && !result.output.contains("had gone"), "\(result.output)")
        #expect(result.output.contains("… and 1 more; a higher --limit includes them"))
    }

    @Test func `event shows the change whole, and how many were there`() async throws {
        let stage = try LedgerStage()
        defer { stage.log.remove() }
        let result = await stage.run("event", "13")
        #expect(result.exitCode == .ok, "\(result.errors)")
        let lines = result.output.split(separator: "\n").map(String.init)
        #expect(lines[0] == "@13 UPDATE public.fullrep key 5")
        #expect(lines[1].hasPrefix("transaction 742, 2026-11-21 10:04:51.704 UTC, its change 1, commit LSN 0/153F018"))
        #expect(lines.contains { $0.hasPrefix("body") && $0.contains("\"call back\"") && $0.contains("\"called\"") })
        #expect(lines.contains { $0.hasPrefix("email") && $0.contains("***") } && !result.output.contains("me@x"))
        #expect(lines.last == "clients that listened to the table: 1 were sent it, 1 had gone")
        let json = await stage.run("event", "@13", "--json")
        #expect(json.output.contains(#""clients":{"received":0,"sent":1,"#), "\(json.output)")
    }

    @Test func `with a database filters and policies are asked, each question once`() async throws {
        let ledger = try LedgerStage()
        defer { ledger.log.remove() }
        let stage = try WhyStage(
            "CREATE POLICY own ON fullrep FOR SELECT USING (email = (auth.jwt() ->> 'email'))", log: ledger.log)
        let result = await run(
            [
                "who", "12", "--log", ledger.log.path, "--database-url", stage.logins.hubURL,
                "--policy-database-url", stage.logins.policyURL, "--json",
            ], commands: commands)
        #expect(result.exitCode == .ok, "\(result.errors)")
        let lines = result.output.split(separator: "\n").map(String.init)
        #expect(lines.count == 2 && lines.allSatisfy { $0.contains(#""claims_not_kept":"phone""#) }, "\(result.output)")
        #expect(lines.first?.hasPrefix(#"{"outcome":"sent","reason":"policy \"own\" is true because"#) == true)
        #expect(lines.last?.hasPrefix(#"{"outcome":"not_matched","reason":"policy \"own\" is false because"#) == true)
    }

    @Test func `of who was cut off with the hub it is not known`() async throws {
        let stage = try LedgerStage(isKilled: true)
        defer { stage.log.remove() }
        let result = await stage.run("who", "13", "--recorded")
        #expect(result.exitCode == .notFound)
        #expect(result.output.contains("unknown") && result.output.contains("the hub was killed"))
    }

    @Test func `where there was no room for notes it is said, and nobody is said to have been sent a change`()
        async throws
    {
        let stage = try LedgerStage(isScarce: true)
        defer { stage.log.remove() }
        let strangers =
            "The log has no notes of 7 clients that came and went then or later: it had no room for so many notes."
        let who = await stage.run("who", "13", "--recorded")
        #expect(who.exitCode == .notFound, "\(who.output)")
        #expect(
            who.output.contains("its later notes are missing: the log had no room before"), "\(who.output)")
        #expect(who.output.split(separator: "\n").contains { $0 == strangers }, "\(who.output)")
        let json = await stage.run("who", "13", "--recorded", "--json")
        #expect(json.output.hasSuffix(#"{"outcome":"not_in_log","clients":7}"# + "\n"), "\(json.output)")
        // The log has the note that Ben left.
        let ben = await stage.run("who", "12", "--recorded", "--json", "--user", LedgerStage.ben)
        #expect(ben.output.hasPrefix(#"{"outcome":"sent""#), "\(ben.output)")
        let user = await stage.run("user", LedgerStage.ana)
        #expect(user.exitCode == .ok)
        #expect(
            user.output.contains("the log had no room: it lacks 2 notes of clients, and all notes of 7 others"),
            "\(user.output)")
        // For a user that the ledger does not know, there is no such answer.
        #expect(await stage.run("user", "nobody").exitCode == .notFound)
    }

    @Test func `user and session tell what happened, in order`() async throws {
        let stage = try LedgerStage()
        defer { stage.log.remove() }
        let user = await stage.run("user", LedgerStage.ben)
        #expect(user.exitCode == .ok, "\(user.errors)")
        let lines = user.output.split(separator: "\n").map(String.init)
        #expect(lines.count == 3 && lines[1].contains("joined") && lines[2].contains("left"), "\(user.output)")
        let session = await stage.run("session", "00000000000000c1/1", "--json")
        #expect(session.output.contains(#""event":"refused""#) && session.output.contains("Unauthorized: no"))
        #expect(await stage.run("session").output.split(separator: "\n").count == 5)
        #expect(await stage.run("user", "nobody").exitCode == .notFound)
    }

    @Test func `where each delivery is recorded no filter has to be asked who was sent a change`() async throws {
        let stage = try LedgerStage(isFull: true)
        defer { stage.log.remove() }
        let result = await stage.run("who", "@13", "--recorded", "--gone")
        let lines = result.output.split(separator: "\n").map(String.init)
        #expect(lines[2].hasPrefix("sent") && lines[2].contains("sent at 2026-11-21 10:04:51.710"), "\(result.output)")
        #expect(lines.contains("Deliveries are recorded (ledger = full) for 1 of 2."), "\(result.output)")
        let earlier = await stage.run("who", "12", "--recorded", "--json")
        let objects = earlier.output.split(separator: "\n")
        #expect(objects.count == 2 && objects.allSatisfy { $0.contains(#""outcome":"not_sent""#) }, "\(earlier.output)")
        #expect(objects.allSatisfy { $0.hasSuffix(#""basis":"recorded","sent_at":null}"#) }, "\(earlier.output)")
        #expect(earlier.exitCode == .notFound)
        let event = await stage.run("event", "12")
        #expect(event.output.contains("clients that listened to the table: 2 were not sent it"), "\(event.output)")
    }

    @Test func `session and user list what was sent, in the order of times`() async throws {
        let stage = try LedgerStage(isFull: true)
        defer { stage.log.remove() }
        let result = await stage.run("user", LedgerStage.ana, "--deliveries", "--json")
        let events = result.output.split(separator: "\n").map { line in
            line.split(separator: ",").filter { $0.hasPrefix(#"{"event":"#) || $0.hasPrefix(#""offset":"#) }
                .joined(separator: " ").replacing("{", with: "").replacing("}", with: "")
        }
        #expect(
            events == [
                #""event":"joined" "offset":12"#, #""event":"sent" "offset":13"#, #""event":"sent" "offset":14"#,
            ], "\(result.output)\(result.errors)")
        let other = await stage.run("user", LedgerStage.ben, "--deliveries", "--json")
        #expect(other.output.split(separator: "\n").count == 2 && !other.output.contains(#""sent""#), "\(other.output)")
        let session = await stage.run("session", "00000000000000a1", "--deliveries")
        #expect(session.output.split(separator: "\n").count { $0.contains(" sent ") } == 2, "\(session.output)")
        #expect(await stage.run("session", "--deliveries").exitCode == .usage)
    }

    @Test func `what is asked for wrongly is said`() async throws {
        let stage = try LedgerStage()
        defer { stage.log.remove() }
        for (words, code, part) in [
            (["who", "x"], ExitCode.usage, "expected a number"),
            (["who", "4711"], .notFound, "the log has no change at @4711; it holds @12 to @18"),
            (["session", "xyz"], .usage, "expected 16 hexadecimal digits"),
        ] {
            let result = await run(words + ["--log", stage.log.path], commands: commands)
            #expect(result.exitCode == code && result.errors.contains(part), "\(result.errors)\(result.output)")
        }
    }
}

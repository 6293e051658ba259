import Bytes
import Change
import EventLog
import System
import TestSupport
import Testing

@testable import History

/// Tests of attendance: what the ledger's notes show about channels and changes.
@Suite(.within(minutes: 5)) struct AttendanceTests {
    private static func note(
        _ event: LedgerNote.Event, session: UInt64 = 1, time: Int64, offset: UInt64 = 0, received: UInt64 = 0,
        subject: String = "ana"
    ) -> LedgerNote {
        var note = LedgerNote(event, time: time, session: session, channel: 3, offset: offset, received: received)
        note.subject = Array(subject.utf8)
        note.reason = Array("why".utf8)
        return note
    }

    private static func book(_ notes: [(note: LedgerNote, place: UInt64)]) -> AttendanceBook {
        var book = AttendanceBook()
        for (note, place) in notes { book.add(RecordedNote(note: note, epoch: 1, place: place)) }
        return book
    }

    @Test func `from its join to its end it was sent what was for it, and got what is known`() throws {
        let book = Self.book([
            (Self.note(.joined, time: 10, offset: 100), 100),
            (Self.note(.told, time: 12, offset: 120), 120),
            (Self.note(.left, time: 20, offset: 150, received: 140), 160),
        ])
        let channel = try #require(book.all.first)
        #expect(channel.reach(of: 99, committed: 9) == .notYet)
        #expect(channel.reach(of: 100, committed: 11) == .sent(isReceived: true))
        #expect(channel.reach(of: 139, committed: 11) == .sent(isReceived: true))
        #expect(channel.reach(of: 140, committed: 11) == .sent(isReceived: false))
        #expect(channel.reach(of: 150, committed: 11) == .endedBefore)
        #expect(channel.losses.count == 1)
    }

    @Test func `who came back was sent later what had been committed meanwhile`() throws {
        let book = Self.book([(Self.note(.joined, time: 50, offset: 100), 130)])
        let channel = try #require(book.all.first)
        #expect(channel.reach(of: 110, committed: 40) == .sentLater(isReceived: false))
        #expect(channel.reach(of: 131, committed: 60) == .sent(isReceived: false))
    }

    @Test func `where the hub ended without a word nobody knows what was sent last`() throws {
        let book = Self.book([
            (Self.note(.joined, session: 1, time: 10, offset: 100), 100),
            (Self.note(.joined, session: 2, time: 11, offset: 101), 101),
            (Self.note(.left, session: 2, time: 12, offset: 105), 105),
            (LedgerNote(.began, time: 30, session: 0, channel: 0), 120),
            (Self.note(.joined, session: 3, time: 31, offset: 120), 120),
        ])
        #expect(
            book.all.map(\.end) == [
                .cut(sentBefore: 0, behind: 120, time: 30), .left(before: 105, received: 0, time: 12, reason: "why"),
                .none,
            ])
        #expect(book.all[0].reach(of: 119, committed: 20) == .unknown)
        #expect(book.all[0].reach(of: 120, committed: 40) == .endedBefore)
        #expect(book.all[1].reach(of: 119, committed: 20) == .endedBefore)
    }

    @Test func `what its loop had sent to all before the hub was killed was sent to it`() throws {
        func reached(_ offset: UInt64, time: Int64) -> (LedgerNote, UInt64) {
            (LedgerNote(.reached, time: time, session: 0, channel: 1, offset: offset), offset)
        }
        let notes = [
            (Self.note(.joined, session: 1 << 10 | 1, time: 10, offset: 100), UInt64(100)),
            (Self.note(.joined, session: 1 << 10 | 2, time: 11, offset: 100), 100),
            reached(110, time: 15),
            // The channel joined while the loop inspected the other channels, and still had to catch up.
            (Self.note(.joined, session: 2 << 10 | 1, time: 16, offset: 90), 111),
            reached(118, time: 16),
            (LedgerNote(.began, time: 30, session: 0, channel: 0), 120),
        ]
        let book = Self.book(notes)
        #expect(book.all[0].reach(of: 117, committed: 12) == .sent(isReceived: false))
        #expect(book.all[0].reach(of: 118, committed: 12) == .unknown)
        #expect(book.all[1].reach(of: 105, committed: 12) == .unknown)
        #expect(book.all[2].reach(of: 95, committed: 12) == .unknown)
    }

    @Test func `where there was no room for notes nobody knows what became of whom, until he is noted again`() throws {
        func missed(_ notes: UInt64, others: UInt64 = 0, loop: UInt32 = 1, time: Int64) -> LedgerNote {
            LedgerNote(.missed, time: time, session: 0, channel: loop, offset: notes, received: others)
        }
        let ana = UInt64(1 << 10 | 1)
        let ben = UInt64(2 << 10 | 1)
        let cho = UInt64(3 << 10 | 2)
        var notes = [ana, ben, cho].map { (Self.note(.joined, session: $0, time: 10, offset: 100), UInt64(100)) }
        notes.append((LedgerNote(.reached, time: 15, session: 0, channel: 1, offset: 110), 110))
        // A note about missing notes of clients that the log does not know does not affect the known clients.
        notes.append((missed(0, others: 3, time: 16), 112))
        #expect(Self.book(notes).all.allSatisfy { $0.reach(of: 119, committed: 12) == .sent(isReceived: false) })
        #expect(Self.book(notes).strangers == 3)
        notes.append((missed(2, others: 1, time: 20), 120))
        var book = Self.book(notes)
        #expect(book.strangers == 4)
        #expect(book.all.allSatisfy { $0.reach(of: 109, committed: 12) == .sent(isReceived: false) })
        #expect(book.all.map { $0.reach(of: 119, committed: 12) } == [.unknown, .unknown, .sent(isReceived: false)])
        #expect(book.all.map { $0.reach(of: 130, committed: 12) } == [.unknown, .unknown, .sent(isReceived: false)])
        // One channel is still joined, with another holder. A late note gives the end of the other channel.
        var stands = Self.note(.stands, session: ana, time: 25, offset: 100, subject: "dora")
        stands.claims = Array(#"{"sub":"dora"}"#.utf8)
        let known = notes + [(stands, 125), (Self.note(.left, session: ben, time: 26, offset: 118), 126)]
        book = Self.book(known)
        #expect(book.all.count == 3 && book.all[0].end == .none)
        #expect(book.all[0].reach(of: 130, committed: 12) == .sent(isReceived: false))
        #expect(book.all[0].holder(at: 119).note.subject == Array("ana".utf8))
        #expect(book.all[0].holder(at: 120).note.subject == Array("dora".utf8))
        #expect(book.all[1].reach(of: 117, committed: 12) == .sent(isReceived: false))
        #expect(book.all[1].reach(of: 118, committed: 12) == .endedBefore)
        // An offset that a loop reached later proves nothing about channels that may have ended before.
        notes.append((LedgerNote(.reached, time: 40, session: 0, channel: 1, offset: 140), 140))
        notes.append((missed(1, time: 41), 141))
        notes.append((LedgerNote(.began, time: 50, session: 0, channel: 0), 150))
        book = Self.book(notes)
        #expect(book.all.map(\.end).prefix(2).allSatisfy { $0 == .cut(sentBefore: 110, behind: 150, time: 50) })
    }

    @Test func `who is noted again is known when its join is not any more`() throws {
        let join = (Self.note(.joined, time: 10, offset: 100), UInt64(100))
        let again = (Self.note(.stands, time: 90, offset: 100), UInt64(900))
        let end = (Self.note(.left, time: 95, offset: 950), UInt64(950))
        let whole = Self.book([join, again, end])
        let rest = Self.book([again, end])
        #expect(whole.all.count == 1 && rest.all.count == 1)
        for book in [whole, rest] {
            #expect(book.all[0].reach(of: 800, committed: 80) == .sent(isReceived: false))
            #expect(book.all[0].reach(of: 960, committed: 97) == .endedBefore)
        }
    }

    /// Returns the attendance at a change, from a ledger with these notes in a new log.
    private static func asked(_ notes: [LedgerNote], of user: String? = nil) throws -> [Attendance] {
        let stage = try HistoryStage()
        let table = Relation(
            oid: 16_400, schema: "public", name: "notes", identity: .primaryKey,
            columns: [column("id", 23, key: true)])
        try stage.commit([.insert(table, ["1"])], time: 10_000_000_000)
        try stage.note(notes)
        let change = try #require(try stage.log.items(HistoryQuery()).compactMap(\.recorded).first)
        return try AttendanceBook(stage.log, at: change, of: user).all
    }

    @Test func `of a change those are kept whom it concerns, and of a user all that were his`() throws {
        let notes = [
            Self.note(.joined, session: 1, time: 1, offset: 0),
            // One channel ended hours ago, the other one minutes ago.
            Self.note(.left, session: 1, time: 2, offset: 0),
            Self.note(.joined, session: 2, time: 3, offset: 0, subject: "ben"),
            Self.note(.left, session: 2, time: 9_000_000_000, offset: 0, subject: "ben"),
            // The hub sent the change to this channel long before the channel left.
            Self.note(.joined, session: 3, time: 4, offset: 0),
            Self.note(.left, session: 3, time: 90_000_000_000, offset: 1),
            // This channel joined after the change.
            Self.note(.joined, session: 4, time: 11_000_000_000, offset: 1),
        ]
        #expect(try Self.asked(notes).map(\.session) == [2, 3])
        #expect(try Self.asked(notes, of: "ana").map(\.session) == [1, 3])
        #expect(try Self.asked(notes, of: "ben").map(\.session) == [2])
    }

    @Test func `who asked over HTTP was told of what lies in the window of the answer`() throws {
        func answer(_ time: Int64, _ offsets: Range<UInt64>) -> LedgerNote {
            Self.note(.answered, time: time, offset: offsets.lowerBound, received: offsets.upperBound)
        }
        let book = Self.book([(answer(20, 100..<150), 150), (answer(21, 150..<160), 160)])
        #expect(book.all.count == 2 && book.all.allSatisfy(\.isAnswer))
        #expect(book.all[0].reach(of: 99, committed: 9) == .notYet)
        // The request arrived after the change. So the rights at the time of the request decided.
        #expect(book.all[0].reach(of: 149, committed: 19) == .sentLater(isReceived: false))
        #expect(book.all[0].reach(of: 150, committed: 19) == .endedBefore)
        #expect(book.all[1].reach(of: 149, committed: 19) == .notYet)
        #expect(try Self.asked([answer(11_000_000_000, 0..<1), answer(12_000_000_000, 1..<1)]).count == 1)
    }

    /// Returns the finding about the change at 0 for a channel, from the channel's notes and deliveries.
    private static func found(
        _ notes: [LedgerNote], sent: [(session: UInt64, offset: UInt64)] = [(9, 0)]
    ) throws -> DeliveryRecord.Finding {
        let stage = try HistoryStage()
        let table = Relation(
            oid: 16_400, schema: "public", name: "notes", identity: .primaryKey,
            columns: [column("id", 23, key: true)])
        try stage.commit([.insert(table, ["1"])], time: 10_000_000_000)
        var notes = notes
        var writer = DeliveryBlockWriter()
        for (session, offset) in sent {
            writer.beginTurn(at: 10_000_000_500, changes: 1)
            let members = [writer.seat(session: session << 10, channel: 3)]
            writer.append(offset, to: members.span)
        }
        if !writer.isEmpty {
            var note = LedgerNote(
                .delivered, time: writer.began, session: 0, channel: 0, offset: writer.offsets.lowerBound,
                received: writer.offsets.upperBound + 1)
            note.deliveries = writer.take()
            notes.append(note)
        }
        try stage.note(notes)
        let change = try #require(try stage.log.items(HistoryQuery()).compactMap(\.recorded).first)
        let book = try AttendanceBook(stage.log, at: change)
        let attendance = try #require(book.all.first)
        return try DeliveryRecord(of: change, in: stage.log).finding(attendance, of: book)
    }

    @Test func `what is recorded as sent was, and what is not was not, as far as all is there`() throws {
        var joined = Self.note(.joined, session: 1 << 10, time: 1, offset: 0)
        let left = Self.note(.left, session: 1 << 10, time: 90_000_000_000, offset: 1)
        let leftBefore = Self.note(.left, session: 1 << 10, time: 90_000_000_000, offset: 0)
        func reached(_ time: Int64) -> LedgerNote {
            LedgerNote(.reached, time: time, session: 0, channel: 0, offset: 1)
        }
        func missing(_ loop: UInt32, _ offset: UInt64) -> LedgerNote {
            LedgerNote(.unrecorded, time: 5, session: 0, channel: loop, offset: offset, received: offset + 1)
        }
        let began = LedgerNote(.began, time: 91_000_000_000, session: 0, channel: 0)
        // The hub does not record each delivery here.
        #expect(try Self.found([joined, left]) == .none)
        joined.isRecorded = true
        #expect(try Self.found([joined, left], sent: [(9, 0), (1, 0)]) == .sent(at: 10_000_000_500))
        #expect(try Self.found([joined, left]) == .notSent)
        #expect(try Self.found([joined, left], sent: [(1, 1)]) == .notSent)
        #expect(try Self.found([joined, leftBefore]) == .none)
        // The record of the delivery may not be in the log yet.
        #expect(try Self.found([joined]) == .unknown)
        #expect(try Self.found([joined, reached(2)]) == .notSent)
        #expect(try Self.found([joined, reached(0)]) == .unknown)
        #expect(try Self.found([joined, began]) == .unknown)
        #expect(try Self.found([joined, reached(2), began]) == .notSent)
        // Some records are missing from the log.
        #expect(try Self.found([joined, left, missing(0, 0)]) == .unknown)
        #expect(try Self.found([joined, left, missing(0, 1)]) == .notSent)
        #expect(try Self.found([joined, left, missing(1, 0)]) == .notSent)
        #expect(try Self.found([joined, left, missing(0, 0)], sent: [(1, 0)]) == .sent(at: 10_000_000_500))
    }

    @Test func `a clock that is ahead makes nobody late who was noted before`() throws {
        let joined = RecordedNote(note: Self.note(.joined, time: 999, offset: 100), epoch: 1, place: 100)
        #expect(Attendance(joined).reach(of: 100, committed: 10) == .sent(isReceived: false))
        let behind = RecordedNote(note: Self.note(.joined, time: 999, offset: 100), epoch: 1, place: 130)
        #expect(Attendance(behind).reach(of: 100, committed: 10) == .sentLater(isReceived: false))
    }

    @Test func `its holder is who it was at the change`() throws {
        let book = Self.book([
            (Self.note(.joined, time: 10, offset: 100), 100),
            (Self.note(.renewed, time: 12, offset: 110, subject: "ben"), 110),
        ])
        let channel = try #require(book.all.first)
        #expect(channel.holder(at: 109).note.subject == Array("ana".utf8))
        #expect(channel.holder(at: 110).note.subject == Array("ben".utf8))
    }

    @Test func `notes of one user or socket are found without the others`() throws {
        let storage = FaultyStorage()
        var options = EventLogOptions(source: 1)
        options.segmentBytes = 200_000
        options.preparesSegments = false
        let writer = try EventLogWriter(directory: storage, options: options)
        var all: [LedgerNote] = []
        for number in 0..<600 {
            try writer.rollIfNeeded(adding: 4_000)
            try writer.append(
                kind: .transaction, changeCount: 1, lsn: UInt64(number), time: Int64(number),
                payload: [UInt8](repeating: 1, count: 3_000).span.bytes)
            guard number % 7 == 0 else { continue }
            let note = Self.note(
                .joined, session: UInt64(number % 5), time: Int64(number), subject: "user \(number % 11)")
            var payload = ByteWriter()
            LedgerCodec.encode([note], to: &payload)
            try writer.append(
                kind: .ledger, lsn: UInt64(number), time: Int64(number), payload: payload.bytes, keys: note.keys.span)
            all.append(note)
        }
        try writer.flush()
        let log = HistoryLog(directory: storage, masking: .nothing)
        func found(_ query: LedgerQuery) throws -> [LedgerNote] {
            var notes: [LedgerNote] = []
            try log.ledger(query) { notes.append($0.note) }
            return notes
        }
        #expect(try found(LedgerQuery()) == all)
        var query = LedgerQuery()
        query.subject = "user 3"
        #expect(try found(query) == all.filter { $0.subject == Array("user 3".utf8) })
        query = LedgerQuery(from: .time(100), to: .time(300))
        query.session = 2
        #expect(try found(query) == all.filter { $0.session == 2 && (100..<300).contains($0.time) })
    }
}

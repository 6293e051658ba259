import Change
import Diagnostics
import TestSupport
import Testing

@testable import Ingest

/// Tests of the limit on ledger notes: clients that join again and again must not fill the log.
@Suite(.within(minutes: 1)) struct LedgerAllowanceTests {
    @Test func `on average it is so much, whoever asks how often`() {
        var allowance = LedgerAllowance()
        var taken = 0
        var now: UInt64 = 5_000_000_000
        for _ in 0..<400_000 {
            now += 70_000_000
            allowance.refill(at: now)
            guard allowance.isLeft else { continue }
            allowance.spend(90_000)
            taken += 90_000
        }
        let seconds = 400_000 * 7 / 100
        let most = Limits.ledgerBurstBytes + (seconds + 1) * Limits.ledgerBytesPerSecond + 90_000
        #expect(taken <= most && taken > most - 200_000)
    }

    @Test func `what was not used is there for a while, and no more than that`() {
        var allowance = LedgerAllowance()
        allowance.refill(at: 0)
        allowance.spend(allowance.bytes)
        #expect(!allowance.isLeft)
        allowance.refill(at: 1_000_000_000)
        #expect(allowance.bytes == Limits.ledgerBytesPerSecond)
        allowance.refill(at: .max)
        #expect(allowance.bytes <= Limits.ledgerBurstBytes)
    }

    @Test func `who is noted anew leaves room for those who end`() {
        let notes = WaitingNotes(ProjectMetrics()).ledger
        func note(_ event: LedgerNote.Event) -> LedgerNote {
            var note = LedgerNote(event, time: 1, session: 1, channel: 1)
            note.topic = [UInt8](repeating: 0x61, count: 1000)
            return note
        }
        func taken(_ event: LedgerNote.Event) -> Int {
            var count = 0
            while notes.record([note(event)]) { count += 1 }
            return count
        }
        let most = Limits.maximumWaitingNoteBytes / note(.left).byteCount
        let standing = taken(.stands)
        #expect(standing <= most / 2 && standing > most / 2 - 2)
        #expect(taken(.delivered) == 0)
        let ended = taken(.left)
        #expect(standing + ended <= most && standing + ended > most - 2)
    }

    @Test func `where presence was dropped, the log says how much, between what came before and after`() {
        let notes = WaitingNotes(ProjectMetrics()).presence
        func mark(_ time: Int64) -> PresenceMark {
            PresenceMark(
                event: .joined, isPrivate: false, time: time, topic: [1], key: [2], ref: [3],
                meta: [UInt8](repeating: 0x61, count: 100_000))
        }
        var time: Int64 = 0
        repeat { time += 1 } while notes.record([mark(time)])
        let firstDropped = time
        for _ in 0..<4 { #expect(!notes.record([mark(time + 1)])) }
        var written: [PresenceMark] = []
        func write() {
            let entry = notes.next()
            written += entry
            notes.taken(entry.count)
        }
        write()
        #expect(notes.record([mark(1_000_000)]))
        while !notes.isEmpty { write() }
        #expect(written.map(\.event).filter { $0 == .missing }.count == 1)
        let place = written.firstIndex { $0.event == .missing } ?? 0
        #expect(written[place].meta == Array(#"{"count":5}"#.utf8) && written[place].time == firstDropped)
        #expect(written[place - 1].time == firstDropped - 1 && written[place + 1].time == 1_000_000)
        // What is too large for the log is missing, too, and nobody need record anything afterwards.
        var large = mark(7)
        large.topic = [UInt8](repeating: 1, count: 70_000)
        #expect(!notes.record([large]))
        #expect(notes.next().map(\.event) == [.missing])
    }
}

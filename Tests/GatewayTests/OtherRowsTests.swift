import Delivery
import Diagnostics
import TestSupport
import Testing

@testable import Gateway

/// Tests of the record of rows that a client may see otherwise than before.
@Suite(.within(minutes: 1)) struct OtherRowsTests {
    @Test func `a transaction of which the client was told is not told again`() {
        var rows = Channel.OtherRows()
        rows.add(.with(slot: 1, values: [[1]]), of: 7, at: 20)
        rows.add(.with(slot: 1, values: [[2]]), of: 7, at: 20)
        #expect(rows.due == [7: .with(slot: 1, values: [[1], [2]])] && !rows.hasTold(20))
        rows.isTold()
        #expect(rows.isEmpty && rows.hasTold(20) && rows.hasTold(3) && !rows.hasTold(21))
        // A policy or token, which no transaction of the log changed, leaves that as it is.
        rows.add(.all, of: 7, at: nil)
        rows.isTold()
        #expect(rows.hasTold(20) && !rows.hasTold(21))
    }

    @Test func `rows by different columns are all rows`() {
        var rows = Channel.OtherRows()
        rows.add(.with(slot: 1, values: [[1]]), of: 7, at: 20)
        rows.add(.with(slot: 2, values: [[1]]), of: 7, at: 20)
        rows.add(.with(slot: 2, values: [[1]]), of: 8, at: 21)
        #expect(rows.due == [7: .all, 8: .with(slot: 2, values: [[1]])])
    }

    @Test func `a channel gets rows so often in quick succession, and then at an interval`() {
        var rows = Channel.OtherRows()
        let interval = Limits.otherRowsInterval.wholeNanoseconds
        let now: UInt64 = 1_000_000_000_000
        let later = now + 2 * UInt64(Limits.otherRowsBurst) * interval
        let times = [
            (now, Limits.otherRowsBurst), (now + interval - 1, 0), (now + interval, 1), (later, Limits.otherRowsBurst),
        ]
        for (time, readings) in times {
            var count = 0
            while rows.takeReading(at: time) { count += 1 }
            #expect(count == readings)
        }
    }
}

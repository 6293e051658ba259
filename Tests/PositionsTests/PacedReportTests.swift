import TestSupport
import Testing

@testable import Positions

@Suite(.within(minutes: 1)) struct PacedReportTests {
    @Test func `a report is sent at once, and the next one after the pause`() {
        var report = PacedReport<Int>()
        #expect(report.take(1) == 1)
        #expect(report.take(2) == nil && report.take(3) == nil)
        #expect(report.untold == 3)
        #expect(report.pauseHasEnded() == 3)
        #expect(report.take(4) == nil)
        #expect(report.tellNow() == 4)
        #expect(report.pauseHasEnded() == nil)
        #expect(report.take(5) == 5)
    }
}

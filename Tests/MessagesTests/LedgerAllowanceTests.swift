import Diagnostics
import TestSupport
import Testing

@testable import Ingest

/// Whoever joins time and again must not fill the log.
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
}

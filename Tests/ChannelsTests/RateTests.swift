import Synchronization
import TestSupport
import Testing

@testable import Channels

/// Rate limit of one channel: five pushes in 30 seconds.
final class WindowStage {
    private(set) var window = PresenceWindow()

    func admits(at milliseconds: UInt64) -> Bool { window.admit(at: milliseconds, maximum: 5, window: 30_000) }
}

@Suite(.within(minutes: 5)) struct RateTests {
    private let second: UInt64 = 1_000_000_000

    @Test func `a sixth push within the window is one too many`() {
        let window = WindowStage()
        for time in [1000, 1001, 5000, 20_000, 30_999] as [UInt64] {
            #expect(window.admits(at: time))
        }
        #expect(!window.admits(at: 30_999))
        #expect(!window.admits(at: 30_999))
    }

    @Test func `the window begins again with the first push after it`() {
        let window = WindowStage()
        for _ in 0..<6 { _ = window.admits(at: 0) }
        let times: [UInt64] = [45_000, 46_000, 47_000, 74_000, 74_999]
        for time in times { #expect(window.admits(at: time)) }
        #expect(!window.admits(at: 74_999))
        #expect(window.admits(at: 75_000))
        #expect(MemoryLayout<PresenceWindow>.size == 8)
    }

    @Test func `a burst within the window's share is tolerated, and no more`() {
        let bucket = RateBucket(rate: 100, window: 60 * second)
        for _ in 0..<6000 { #expect(bucket.take(at: second)) }
        #expect(bucket.isExhausted(at: second) && !bucket.take(at: second))
        #expect(!bucket.fits(1, at: second))
        #expect(!bucket.isExhausted(at: second + second / 100))
        #expect(bucket.take(at: second + second / 100) && !bucket.take(at: second + second / 100))
    }

    @Test func `what is spent at the rate is never too much`() {
        let bucket = RateBucket(rate: 7, window: second)
        for step in 0..<1000 as Range<UInt64> { #expect(bucket.take(at: step * second / 7 + step)) }
    }

    @Test func `one huge message is taken whole, and forgotten after a window`() {
        let bucket = RateBucket(rate: 10, window: 60 * second)
        #expect(!bucket.fits(601, at: 0) && bucket.fits(600, at: 0))
        #expect(bucket.take(1_000_000, at: 0))
        #expect(bucket.isExhausted(at: 59 * second) && !bucket.isExhausted(at: 61 * second))
        #expect(bucket.take(.max, at: 61 * second))
    }

    @Test func `no rate is no limit`() {
        let bucket = RateBucket(rate: 0, window: second)
        for _ in 0..<100 { #expect(bucket.take(.max, at: 5)) }
        #expect(bucket.fits(.max, at: 5) && bucket.level(at: 5) == RateLevel(rolling: 0, limit: 0))
    }

    @Test func `the level is the window's average`() {
        let bucket = RateBucket(rate: 100, window: 60 * second)
        bucket.take(3000, at: 0)
        #expect(bucket.level(at: 0) == RateLevel(rolling: 50, limit: 100))
        #expect(bucket.level(at: 0).remaining == 50)
        #expect(bucket.level(at: 30 * second).rolling == 0)
        bucket.take(1 << 40, at: 30 * second)
        #expect(bucket.level(at: 30 * second).remaining == 0)
    }

    @Test(arguments: 1...50)
    func `who is refused is not told that there is some left`(rate: Int) {
        let bucket = RateBucket(rate: rate, window: 60 * second)
        let cost = second / UInt64(rate)
        while bucket.take(at: 0) {}
        for moment in [0, 1, cost / 2, cost - 1] where !bucket.fits(1, at: moment) {
            #expect(bucket.level(at: moment).remaining == 0, "after \(moment) ns")
        }
    }

    @Test func `a rate that changes counts at once`() {
        let bucket = RateBucket(rate: 1, window: second)
        #expect(bucket.take(at: 0) && !bucket.take(at: 0))
        bucket.setRate(1000)
        #expect(bucket.take(at: second / 1000) && bucket.level(at: 0).limit == 1000)
        bucket.setRate(0)
        #expect(bucket.take(1000, at: 0))
    }

    @Test func `threads that take together do not take more than there is`() throws {
        let bucket = RateBucket(rate: 1000, window: 10 * second)
        let taken = Atomic<Int>(0)
        try together(4) { _ in
            taken.add((0..<5000).count { _ in bucket.take(at: 1) }, ordering: .relaxed)
        }
        #expect(taken.load(ordering: .relaxed) == 10_000)
    }
}

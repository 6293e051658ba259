import System

/// Runner of a function a hundred times per second, at equal intervals. A call that is late starts as soon as the
/// previous one ends.
enum EvenPace {
    private static let intervalNanoseconds: UInt64 = 10_000_000

    static func run(_ count: Int, _ body: (Int) throws -> Void) rethrows {
        let began = Clock.monotonicNanoseconds()
        for number in 0..<count {
            let due = began + UInt64(number) * intervalNanoseconds
            let now = Clock.monotonicNanoseconds()
            if now < due { BackgroundThread.rest(nanoseconds: due - now) }
            try body(number)
        }
    }
}

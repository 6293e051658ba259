import Foundation

/// Parts of a client that tests replace. Apps' tests set them by the initializers of `TidewireClientTesting`.
package struct TidewireSeams: Sendable {
    package var transport: any Transport
    package var clock: any ClientClock
    /// Seed of the random part of delays between attempts.
    package var seed: UInt64

    package init(
        transport: any Transport = systemTransport(), clock: any ClientClock = SystemClock(),
        seed: UInt64 = .random(in: .min ... .max)
    ) {
        self.transport = transport
        self.clock = clock
        self.seed = seed
    }
}

/// Parts of a queue of writes that tests replace.
package struct OfflineWritesSeams: Sendable {
    package var clock: any ClientClock
    /// Returns the current date, by which writes are dated and expire.
    package var date: @Sendable () -> Date

    package init(clock: any ClientClock, date: @escaping @Sendable () -> Date) {
        self.clock = clock
        self.date = date
    }
}

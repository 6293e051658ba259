import Foundation

/// Parts of a client that tests replace. Tests of apps set them through the initializers of `TidewireClientTesting`.
package struct TidewireSeams: Sendable {
    package var transport: any Transport
    package var clock: any ClientClock
    /// Seed for the random part of the delays between connection attempts.
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
    /// Returns the current date. The queue dates writes by it, and expires old ones.
    package var date: @Sendable () -> Date

    package init(clock: any ClientClock, date: @escaping @Sendable () -> Date) {
        self.clock = clock
        self.date = date
    }
}

import Foundation
import TidewireClient

extension Tidewire {
    /// Creates a client for a test.
    ///
    /// - Parameters:
    ///   - transport: transport in place of the network, for example a ``MemoryHub``.
    ///   - clock: clock that the client uses, for example a ``ManualClock`` that the test moves.
    ///   - seed: seed of the random part of delays between attempts, so that a test repeats exactly.
    public convenience init(
        url: URL, key: String, token: String? = nil, storage: any TidewireStorage = MemoryStorage(),
        transport: any Transport, clock: any ClientClock = SystemClock(), maximumWaitingChanges: Int = 10_000,
        seed: UInt64 = .random(in: .min ... .max)
    ) {
        self.init(
            url: url, key: key, token: token, storage: storage, maximumWaitingChanges: maximumWaitingChanges,
            seams: TidewireSeams(transport: transport, clock: clock, seed: seed))
    }
}

extension OfflineWrites {
    /// Creates a queue of writes for a test.
    ///
    /// - Parameters:
    ///   - clock: clock that the queue uses, for example a ``ManualClock`` that the test moves.
    ///   - date: returns the current date, by which writes are dated and expire.
    public convenience init(
        storage: any TidewireStorage, limits: OfflineQueue.Limits = .init(), clock: any ClientClock,
        date: @escaping @Sendable () -> Date = { Date() }, send: @escaping @Sendable (PendingWrite) async -> Answer
    ) {
        self.init(storage: storage, limits: limits, seams: OfflineWritesSeams(clock: clock, date: date), send: send)
    }
}

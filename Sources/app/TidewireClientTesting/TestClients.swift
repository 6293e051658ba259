import Foundation
import TidewireClient

extension Tidewire {
    /// Creates a client of a hub in memory.
    ///
    /// - Parameters:
    ///   - hub: hub in place of the network.
    ///   - key: public key of the project. The hub in memory accepts any.
    ///   - token: token of the signed-in user; nil while no user is signed in.
    ///   - storage: storage for positions that the app does not save itself.
    ///   - clock: clock that the test moves; nil for the system's clock.
    ///   - maximumWaitingChanges: maximum number of changes of one query that wait for the app.
    ///   - seed: seed of the random part of delays between attempts, so that a test repeats exactly.
    public convenience init(
        hub: MemoryHub, key: String = "key", token: String? = nil, storage: any TidewireStorage = MemoryStorage(),
        clock: ManualClock? = nil, maximumWaitingChanges: Int = 10_000, seed: UInt64 = .random(in: .min ... .max)
    ) {
        self.init(
            url: hub.url, key: key, token: token, storage: storage, maximumWaitingChanges: maximumWaitingChanges,
            seams: TidewireSeams(transport: hub, clock: clock ?? SystemClock(), seed: seed))
    }

    /// Creates a client of a hub in memory.
    @available(*, deprecated, renamed: "init(hub:key:token:storage:clock:maximumWaitingChanges:seed:)")
    public convenience init(
        url: URL, key: String, token: String? = nil, storage: any TidewireStorage = MemoryStorage(),
        transport: MemoryHub, clock: ManualClock? = nil, maximumWaitingChanges: Int = 10_000,
        seed: UInt64 = .random(in: .min ... .max)
    ) {
        self.init(
            hub: transport, key: key, token: token, storage: storage, clock: clock,
            maximumWaitingChanges: maximumWaitingChanges, seed: seed)
    }
}

extension OfflineWrites {
    /// Creates a queue of writes for a test.
    ///
    /// - Parameters:
    ///   - storage: storage of the writes between launches.
    ///   - limits: maximum number, size and age of the writes.
    ///   - clock: clock that the test moves.
    ///   - date: returns the current date, by which writes are dated and expire.
    ///   - send: sends one write to the app's API. The same write may be sent twice.
    public convenience init(
        storage: any TidewireStorage, limits: OfflineWrites.Limits = .init(), clock: ManualClock,
        date: @escaping @Sendable () -> Date = { Date() }, send: @escaping @Sendable (PendingWrite) async -> Answer
    ) {
        self.init(storage: storage, limits: limits, seams: OfflineWritesSeams(clock: clock, date: date), send: send)
    }
}

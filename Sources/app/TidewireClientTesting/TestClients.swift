import Foundation
import TidewireClient

extension Tidewire {
    /// Creates a client that is connected to a hub in memory.
    ///
    /// - Parameters:
    ///   - hub: hub to which the client connects.
    ///   - key: public key of the project. The hub in memory accepts any key.
    ///   - token: token of the signed-in user; nil while no user is signed in.
    ///   - storage: storage for positions that the client saves for the app.
    ///   - clock: clock that the test moves; nil for the system's clock.
    ///   - maximumWaitingChanges: maximum number of changes of one query that wait for the app.
    ///   - seed: seed for the random part of the delays between attempts, so that a test can repeat exactly.
    public convenience init(
        hub: MemoryHub, key: String = "key", token: String? = nil, storage: any TidewireStorage = MemoryStorage(),
        clock: ManualClock? = nil, maximumWaitingChanges: Int = 10_000, seed: UInt64 = .random(in: .min ... .max)
    ) {
        self.init(
            url: hub.url, key: key, token: token, storage: storage, maximumWaitingChanges: maximumWaitingChanges,
            seams: TidewireSeams(transport: hub, clock: clock ?? SystemClock(), seed: seed))
    }

    /// Creates a client that is connected to a hub in memory.
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
    ///   - date: returns the current date. The queue dates writes by it, and expires old ones.
    ///   - send: sends one write to the app's API. The same write may be sent twice.
    public convenience init(
        storage: any TidewireStorage, limits: OfflineWrites.Limits = .init(), clock: ManualClock,
        date: @escaping @Sendable () -> Date = { Date() }, send: @escaping @Sendable (PendingWrite) async -> Answer
    ) {
        self.init(storage: storage, limits: limits, seams: OfflineWritesSeams(clock: clock, date: date), send: send)
    }
}

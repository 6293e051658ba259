import Foundation
import Synchronization

/// A queue of writes in the client's storage, which are sent when possible. Signing out clears the queue.
///
/// ```swift
/// let writes = OfflineWrites(storage: storage) { write in await api.upsert(write) }
/// try writes.add(PendingWrite(table: "notes", row: id, kind: .insert, values: ["text": "hello"], madeAt: .now))
///
/// await writes.run { write in store.sent(write) } lost: { write, why in store.revert(write, why) }     // in a task
/// ```
public final class OfflineWrites: Sendable {
    public enum Answer: Sendable {
        case done
        /// The write cannot be done now: there is no network, or the server is busy.
        case later
        /// The write can never succeed: the user has no right, or a constraint forbids it.
        case refused(String)
    }

    private static let name = "writes"

    private let storage: any TidewireStorage
    private let clock: any ClientClock
    private let date: @Sendable () -> Date
    private let send: @Sendable (PendingWrite) async -> Answer
    private let queue: Mutex<OfflineQueue>
    private let bell = Mailbox<Void>()

    /// Creates a queue with the writes that the storage has.
    ///
    /// - Parameters:
    ///   - storage: storage of the writes between launches.
    ///   - limits: maximum number, size and age of the writes.
    ///   - send: sends one write to the app's API. The same write may be sent twice.
    public convenience init(
        storage: any TidewireStorage, limits: OfflineQueue.Limits = .init(),
        send: @escaping @Sendable (PendingWrite) async -> Answer
    ) {
        let seams = OfflineWritesSeams(clock: SystemClock()) { Date() }
        self.init(storage: storage, limits: limits, seams: seams, send: send)
    }

    package init(
        storage: any TidewireStorage, limits: OfflineQueue.Limits = .init(), seams: OfflineWritesSeams,
        send: @escaping @Sendable (PendingWrite) async -> Answer
    ) {
        self.storage = storage
        clock = seams.clock
        date = seams.date
        self.send = send
        var kept = storage.load(Self.name).flatMap { try? JSONDecoder().decode(OfflineQueue.self, from: $0) }
        kept?.launched()
        queue = Mutex(kept ?? OfflineQueue(limits: limits))
    }

    public var waiting: [PendingWrite] { queue.withLock { $0.writes } }
    public func hasUnsent(_ table: String, _ row: String) -> Bool { queue.withLock { $0.hasUnsent(table, row) } }

    public func add(_ write: PendingWrite) throws(OfflineQueue.Refusal) {
        try change { queue throws(OfflineQueue.Refusal) in try queue.add(write) }
        bell.put(())
    }

    /// Adds a write of these columns of a row, with the current time.
    public func add(
        _ kind: PendingWrite.Kind, _ table: String, _ row: String, _ values: [String: JSONValue] = [:],
        parent: String? = nil, newestOnly: Bool = false
    ) throws(OfflineQueue.Refusal) {
        try add(
            PendingWrite(
                table: table, row: row, kind: kind, values: values, parent: parent, newestOnly: newestOnly,
                madeAt: date()))
    }

    /// Tries again at once. Call it when the network is back.
    public func wake() { bell.put(()) }

    /// Removes all writes, so that they are not sent for another user.
    public func clear() { change { $0 = OfflineQueue() } }

    private func change<Value: Sendable, Failure>(
        _ step: (inout OfflineQueue) throws(Failure) -> Value
    ) throws(Failure) -> Value {
        let answer = queue.withLock { queue in
            let result = Result { () throws(Failure) in try step(&queue) }
            storage.save(try? JSONEncoder().encode(queue), Self.name)
            return result
        }
        return try answer.get()
    }

    /// Ends `run` after the writes that are being sent.
    public func end() { bell.finish(discarding: true) }

    /// Sends writes that are ready, and reports accepted and lost writes. Runs until its task is cancelled or `end` is
    /// called.
    public func run(
        sent: (PendingWrite) async -> Void = { _ in }, lost: (PendingWrite, OfflineQueue.Loss) async -> Void
    ) async {
        while !Task.isCancelled, !bell.isFinished {
            for (write, why) in change({ $0.dropOld(at: date()) }) { await lost(write, why) }
            let ready = change { $0.takeReady(at: date()) }
            for write in ready {
                switch await send(write) {
                case .done:
                    change { $0.succeeded(write.id) }
                    await sent(write)
                case .later: change { $0.failed(write.id, at: date(), seed: .random(in: .min ... .max)) }
                case .refused(let reason):
                    for (write, why) in change({ $0.refused(write.id, reason) }) { await lost(write, why) }
                }
            }
            if ready.isEmpty { await rest() }
        }
    }

    private func rest() async {
        if let next = queue.withLock({ $0.nextMoment }) {
            let seconds = max(0, next.timeIntervalSince(date()))
            clock.wake(at: clock.now + .seconds(seconds)) { [bell] in bell.put(()) }
        }
        await bell.take()
    }
}

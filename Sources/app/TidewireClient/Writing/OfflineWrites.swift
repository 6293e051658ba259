import Foundation
import Synchronization

/// A queue of writes that are sent when the network allows it. The client's storage keeps them between launches.
/// Signing out clears that storage; call ``removeAll()`` too, because this object still holds its writes.
///
/// ```swift
/// let writes = OfflineWrites(storage: storage) { write in await api.upsert(write) }
/// try writes.add(PendingWrite(table: "notes", row: id, kind: .insert, values: ["text": "hello"], date: .now))
///
/// await writes.run { write in store.sent(write) } lost: { write, why in store.revert(write, why) }     // in a task
/// ```
public final class OfflineWrites: Sendable {
    /// Result of an attempt to send a write.
    public enum Answer: Sendable {
        /// The server has accepted the write.
        case done
        /// The write failed for now: there is no network, or the server is overloaded. The queue tries again.
        case later
        /// The write can never succeed: the user has no right, or a constraint forbids it. The text is the reason.
        case refused(String)
    }

    private static let name = "writes"

    private let storage: any TidewireStorage
    private let clock: any ClientClock
    private let date: @Sendable () -> Date
    private let send: @Sendable (PendingWrite) async -> Answer
    private let queue: Mutex<WriteQueue>
    private let bell = Mailbox<Void>()

    /// Creates a queue with the writes that the storage contains.
    ///
    /// - Parameters:
    ///   - storage: storage of the writes between launches.
    ///   - limits: maximum number, size and age of the writes.
    ///   - send: sends one write to the app's API. The same write may be sent twice.
    public convenience init(
        storage: any TidewireStorage, limits: Limits = .init(),
        send: @escaping @Sendable (PendingWrite) async -> Answer
    ) {
        let seams = OfflineWritesSeams(clock: SystemClock()) { Date() }
        self.init(storage: storage, limits: limits, seams: seams, send: send)
    }

    package init(
        storage: any TidewireStorage, limits: Limits = .init(), seams: OfflineWritesSeams,
        send: @escaping @Sendable (PendingWrite) async -> Answer
    ) {
        self.storage = storage
        clock = seams.clock
        date = seams.date
        self.send = send
        var kept = storage.load(Self.name).flatMap { try? JSONDecoder().decode(WriteQueue.self, from: $0) }
        kept?.launched()
        queue = Mutex(kept ?? WriteQueue(limits: limits))
    }

    /// Writes that the server has not accepted yet, in the order in which they were added.
    public var pendingWrites: [PendingWrite] { queue.withLock { $0.writes } }

    /// Returns true if the server has not yet accepted all writes of a row.
    ///
    /// - Complexity: O(*n*), where *n* is the number of pending writes.
    public func hasUnsentWrite(table: String, row: String) -> Bool {
        queue.withLock { $0.hasUnsentWrite(table: table, row: row) }
    }

    /// Adds a write. Combines it with waiting writes of the same row if possible.
    ///
    /// - Throws: ``Refusal`` if the queue is full.
    public func add(_ write: PendingWrite) throws(Refusal) {
        try change { queue throws(Refusal) in try queue.add(write) }
        bell.put(())
    }

    /// Adds a write of some columns of a row. Its date is the current time.
    ///
    /// - Parameters:
    ///   - kind: operation of the write.
    ///   - table: name of the table.
    ///   - row: key of the row, as text.
    ///   - values: columns to write, with their values.
    ///   - parent: row that must exist on the server before this one, as `table/key`; nil if there is none.
    ///   - isReplaceable: true if this insert replaces an earlier insert of the row that still waits.
    /// - Throws: ``Refusal`` if the queue is full.
    public func add(
        _ kind: PendingWrite.Kind, table: String, row: String, values: [String: JSONValue] = [:],
        parent: String? = nil, isReplaceable: Bool = false
    ) throws(Refusal) {
        try add(
            PendingWrite(
                table: table, row: row, kind: kind, values: values, parent: parent, isReplaceable: isReplaceable,
                date: date()))
    }

    /// Makes the queue try again without waiting for the delay of a failed write. Call it when the network is available
    /// again.
    public func wake() { bell.put(()) }

    /// Removes all writes, so that they are not sent for another user.
    public func removeAll() { change { $0 = WriteQueue() } }

    private func change<Value: Sendable, Failure>(
        _ step: (inout WriteQueue) throws(Failure) -> Value
    ) throws(Failure) -> Value {
        let answer = queue.withLock { queue in
            let result = Result { () throws(Failure) in try step(&queue) }
            storage.save(try? JSONEncoder().encode(queue), as: Self.name)
            return result
        }
        return try answer.get()
    }

    /// Ends ``run(sent:lost:)`` after the writes that are being sent.
    public func end() { bell.finish(discarding: true) }

    /// Sends writes when they are due, and reports accepted and lost writes. Runs until its task is cancelled or
    /// ``end()`` is called.
    ///
    /// - Parameters:
    ///   - sent: receives each write that the server has accepted.
    ///   - lost: receives each write that will not be sent any more, with the reason. The app must undo what it showed
    ///     of it.
    public func run(
        sent: (PendingWrite) async -> Void = { _ in }, lost: (PendingWrite, Loss) async -> Void
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

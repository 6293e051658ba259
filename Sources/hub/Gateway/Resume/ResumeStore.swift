import Auth
import Bytes
import Channels
import Diagnostics
import EventLog
import Peers
import Protocol
import Settings
import Synchronization
import System

/// Acknowledged positions of a project's channels, including those whose clients have disconnected and may return. All
/// loops share one store, which survives restarts.
///
/// Loops update the positions once a second, and when a channel is joined or ends. A thread writes the changes to the
/// disk, so that no loop waits for it.
public final class ResumeStore: Sendable {
    private let book: Mutex<ResumeRegistry>
    private let scope: CatchUpScope
    private let graceSeconds: Int64
    /// Clock for the expiry of entries, which continues across restarts of the hub.
    private let clock: SteadySeconds
    private let secret: ResumeRegistry.Secret
    /// File in which the positions are stored; nil if they are kept in memory only.
    private let file: (any StorageFile)?
    private let writer = BackgroundWriter("departures")
    private let hasFailed = Atomic<Bool>(false)
    private let peers = Mutex(PeerClients())

    static let fileName = "departures"
    private static let newName = "departures.new"

    /// Restores the positions that an earlier process wrote. All clients of that process count as disconnected.
    public init(
        loops: Int, scope: CatchUpScope, grace: Duration, in directory: (any StorageDirectory)?,
        time: any TimeSource, maximum: Int = Limits.maximumResumableChannels,
        secret: ResumeRegistry.Secret = ResumeRegistry.Secret(
            first: .random(in: 0 ... .max), second: .random(in: 0 ... .max))
    ) throws(SystemError) {
        self.scope = scope
        graceSeconds = grace.components.seconds
        var book = ResumeRegistry(maximum: maximum, loops: loops)
        let bytes = try directory.map { directory throws(SystemError) in try Self.read(directory) } ?? nil
        let former = bytes.flatMap { ResumeRegistry.Head(of: $0.rawBytes) }
        clock = SteadySeconds(time, former)
        if let bytes, former != nil {
            let now = clock.seconds(at: time.monotonicNanoseconds())
            book.restore(bytes.rawBytes, now: now, until: now + grace.components.seconds)
        }
        self.secret = former?.secret ?? secret
        let head = ResumeRegistry.Head(secret: self.secret, boot: time.boot, bootSeconds: clock.bootSeconds)
        file = try directory.map { directory throws(SystemError) in try Self.begin(directory, head.bytes, &book) }
        self.book = Mutex(book)
    }

    private static func read(_ directory: any StorageDirectory) throws(SystemError) -> [UInt8]? {
        guard try directory.names().contains(fileName) else { return nil }
        return try directory.open(fileName, for: .reading).contents(atMost: maximumBytes)
    }

    private static let maximumBytes = UInt64((Limits.maximumResumableChannels + 256) * ResumeRegistry.recordBytes)

    /// Writes a new file with the current state. It replaces the former file only when it is complete.
    private static func begin(
        _ directory: any StorageDirectory, _ head: [UInt8], _ book: inout ResumeRegistry
    ) throws(SystemError) -> any StorageFile {
        let file = try directory.open(newName, for: .creating)
        try write([(head, 0)] + book.takeChanges(), to: file)
        try file.sync()
        try directory.rename(newName, to: fileName)
        try directory.sync()
        return file
    }

    private static func write(_ changes: [(bytes: [UInt8], at: UInt64)], to file: any StorageFile) throws(SystemError) {
        for (bytes, place) in changes {
            try file.write(bytes.rawBytes, at: place)
        }
    }

    // MARK: Identity of clients

    /// Returns the key by which a channel is recognized that joins again on its own socket. The key contains no
    /// identity of the client, because a socket has only one.
    func socketKey(of channel: Channel) -> ResumeKey { hash([], channel, secret) }

    /// Returns the key by which a client is recognized that returns on another socket; nil if clients cannot be
    /// distinguished.
    func key(of channel: Channel) -> ResumeKey? { key(of: channel, secret) }

    func key(of channel: Channel, _ secret: ResumeRegistry.Secret) -> ResumeKey? {
        guard let identity = identity(of: channel) else { return nil }
        return hash([Array(identity.kind.utf8), Array(identity.name.utf8)], channel, secret)
    }

    private func hash(
        _ identity: [[UInt8]], _ channel: Channel, _ secret: ResumeRegistry.Secret
    ) -> ResumeKey {
        var words = identity
        words.append(channel.claims.role.copied())
        words.append(channel.claims.subject.copied())
        words.append(channel.topic)
        words.append(channel.conversation.isPrivate ? [1] : [0])
        for binding in channel.bindings { words += binding.words }
        var high = KeyHash(seed: secret.first)
        var low = KeyHash(seed: secret.second)
        for word in words {
            let bytes = word.rawBytes
            high.combine(bytes)
            low.combine(bytes)
        }
        return ResumeKey(high: high.value, low: low.value)
    }

    private func identity(of channel: Channel) -> (kind: String, name: String)? {
        if let name = channel.session.terms.clientID { return ("client_id", name) }
        guard scope == .sessions, let session = channel.claims.sessionID else { return nil }
        return ("session_id", session)
    }

    // MARK: Changes of the book

    /// Decides if a joining client is new or resumes, also from where it stood on another node of a cluster.
    ///
    /// - Parameters:
    ///   - key: key of the channel; nil for a client that cannot be distinguished from others.
    ///   - keyOf: returns the key of the channel as another node hashes it.
    func arrival(
        _ key: ResumeKey?, of taker: ResumeRegistry.Taker, firstRef: UInt32, on loop: Int, now: UInt64,
        keyOf: (ResumeRegistry.Secret) -> ResumeKey? = { _ in nil }
    ) -> ResumeRegistry.Arrival {
        let arrival = book.withLock { $0.arrival(key, of: taker, firstRef: firstRef, on: loop, now: now) }
        guard case .unknown = arrival, let key,
            let stand = peers.withLock({ $0.find(firstRef, key: keyOf) })
        else { return arrival }
        let place = book.withLock {
            $0.arrive(
                key, of: taker, on: loop, lastRef: firstRef, at: stand.mark, owesLoss: stand.owesLoss, now: now)
        }
        return .goesOn(ResumeRegistry.Claim(mark: stand.mark, owesLoss: stand.owesLoss, place: place))
    }

    // MARK: Between nodes

    /// Returns what this node tells the others about its clients; nil if the store is not shared.
    func records(time: any TimeSource) -> PeerRecords {
        book.withLock { $0.share() }
        return PeerRecords(
            changes: { [self] all in book.withLock { $0.takeShared(all: all, secret: secret) } },
            learn: { [self] node, home, content in
                let now = clock.seconds(at: time.monotonicNanoseconds())
                return peers.withLock {
                    $0.learn(node, of: home, content.rawBytes, forgettingAt: now + graceSeconds)
                }
            },
            lose: { [self] node in
                let now = clock.seconds(at: time.monotonicNanoseconds())
                peers.withLock { $0.lose(node, until: now + graceSeconds) }
            },
            takeClaims: { [self] in
                let now = clock.seconds(at: time.monotonicNanoseconds())
                return peers.withLock { peers in
                    peers.expire(now: now)
                    return peers.takeClaims(until: now + graceSeconds).map {
                        PeerRecords.Claim(home: $0.home, entry: $0.entry)
                    }
                }
            },
            claimed: { [self] claim in
                book.withLock { $0.claimedElsewhere(claim.entry, now: time.monotonicNanoseconds()) }
            }, overheard: { [self] claim in peers.withLock { $0.forget(claim.entry, of: claim.home) } })
    }

    /// Enters in the registry a client that joins again on the same socket. Returns the index of its entry; nil if
    /// there is no room.
    func comeBack(
        to place: ResumeRegistry.Place?, _ key: ResumeKey, of taker: ResumeRegistry.Taker, on loop: Int,
        lastRef: UInt32, at stand: ResumeRegistry.Stand, now: UInt64
    ) -> ResumeRegistry.Place? {
        book.withLock {
            $0.comeBack(to: place, key, of: taker, on: loop, lastRef: lastRef, at: stand, now: now)
        }
    }

    func arrive(
        _ key: ResumeKey, of taker: ResumeRegistry.Taker, on loop: Int, lastRef: UInt32, at mark: EventLogPosition,
        owesLoss: Bool, now: UInt64
    ) -> ResumeRegistry.Place? {
        book.withLock {
            $0.arrive(key, of: taker, on: loop, lastRef: lastRef, at: mark, owesLoss: owesLoss, now: now)
        }
    }

    func leave(_ place: ResumeRegistry.Place) { book.withLock { $0.leave(place) } }

    func depart(
        _ place: ResumeRegistry.Place, at mark: EventLogPosition, lastRef: UInt32, owesLoss: Bool, heard: UInt64,
        now: UInt64
    ) {
        book.withLock { book in
            book.stand(place, at: mark, lastRef: lastRef, owesLoss: owesLoss, heard: heard)
            book.depart(place, owesLoss: owesLoss, heard: heard, until: clock.seconds(at: now) + graceSeconds)
        }
        writer.wake()
    }

    /// Update of one channel's registry entry.
    struct Stand {
        let place: ResumeRegistry.Place
        let mark: EventLogPosition?
        let lastRef: UInt32
        let owesLoss: Bool
        let heard: UInt64
    }

    /// Updates the registry's positions of one loop's channels; the loop calls this once a second. Returns the entries
    /// in doubt, whose clients must answer a ping.
    func update(
        _ mark: EventLogPosition, of loop: Int, _ stands: [Stand], now: UInt64, _ metrics: ProjectMetrics
    ) -> [ResumeRegistry.Place] {
        defer { writer.wake() }
        return book.withLock { book in
            for stand in stands {
                book.stand(
                    stand.place, at: stand.mark, lastRef: stand.lastRef, owesLoss: stand.owesLoss, heard: stand.heard)
            }
            book.set(mark, of: loop)
            book.expire(now: clock.seconds(at: now))
            metrics.departures.set(Int64(book.goneCount))
            metrics.departuresEvicted.add(book.takeEvicted())
            return book.takeDoubted(on: loop)
        }
    }

    // MARK: Writing to the disk

    public func start() throws(SystemError) {
        if file != nil { try writer.start { [self] in flush() } }
    }

    /// Stops the thread after a last write.
    public func stop() { writer.stop() }

    /// Writes changed registry entries to the disk. Returns false if that failed; the next attempt then writes
    /// everything again.
    @discardableResult
    public func flush() -> Bool {
        guard let file else { return true }
        let changes = book.withLock { book in
            if hasFailed.load(ordering: .relaxed) { book.touchAll() }
            return book.takeChanges()
        }
        guard !changes.isEmpty else { return true }
        do throws(SystemError) {
            try Self.write(changes, to: file)
            try file.sync()
            if hasFailed.exchange(false, ordering: .relaxed) {
                Log.shared.info("the hub can store the positions of clients again", [.path(file.path)])
            }
            return true
        } catch {
            if !hasFailed.exchange(true, ordering: .relaxed) {
                Log.shared.warning(
                    "cannot store the positions of clients: after a restart, the hub could not resume them",
                    [.path(file.path), .error("\(error)")])
            }
            return false
        }
    }
}

/// Unix time in seconds at one moment, continued by the monotonic clock. A step of the wall clock does not change it,
/// even if the hub restarts. The wall clock is read again only after the computer restarts.
private struct SteadySeconds: Sendable {
    /// Unix time in seconds at the monotonic clock's zero.
    let bootSeconds: Int64

    init(_ time: any TimeSource, _ former: ResumeRegistry.Head?) {
        if let former, former.boot == time.boot, time.boot != 0 {
            bootSeconds = former.bootSeconds
        } else {
            bootSeconds = time.unixSeconds - Int64(time.monotonicNanoseconds() / 1_000_000_000)
        }
    }

    func seconds(at monotonicNanoseconds: UInt64) -> Int64 {
        bootSeconds + Int64(monotonicNanoseconds / 1_000_000_000)
    }
}

extension Channel.Binding {
    /// Texts of all parameters of the binding, by which bindings are compared.
    fileprivate var words: [[UInt8]] {
        guard let parameters else { return [[]] }
        let texts =
            ["\(parameters.event.name)", parameters.schema, parameters.table, parameters.filter.map { "=" + $0 } ?? ""]
            + parameters.select
        return texts.map { Array($0.utf8) } + [
            [wantsMoves ? 1 : 0, UInt8(truncatingIfNeeded: parameters.select.count)]
        ]
    }
}

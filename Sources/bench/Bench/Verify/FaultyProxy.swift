import Synchronization
import System

/// Proxy between all clients of the verifier and the hub. On orders of the faults, it holds bytes back, passes them on
/// slowly, loses them, or cuts connections.
///
/// The proxy also records how connections end: which side closed first, and whether the proxy had disturbed the
/// connection before.
final class FaultyProxy: Sendable {
    enum Deed: Sendable {
        /// Passes nothing on for this time, in either direction. Still reads the hub's bytes while the proxy's buffer
        /// has room.
        case hold(milliseconds: Int)
        /// Passes bytes on in small pieces for this time, with a pause after each piece.
        case slow(milliseconds: Int, pauseMilliseconds: Int)
        /// Reads and discards the hub's bytes for this time, then cuts the client's side. The hub's side is cut later.
        case swallow(milliseconds: Int)
        case cut
    }

    struct Order: Sendable {
        var deed: Deed
        /// Inverse of the probability with which the order disturbs a connection.
        var oneIn: Int
        var seed: UInt64
    }

    struct Outcome: Sendable {
        var connections = 0
        var bytesLost = 0
        var touched = 0
        /// Connections that the hub closed although it was running normally and the proxy had not disturbed them.
        /// `said` has the hub's last bytes.
        var unexplained: [(at: UInt64, said: String)] = []
    }

    private struct Shared {
        var orders: [Order] = []
        var outcome = Outcome()
        var isOver = false
        /// Monotonic time until which the hub may close any connection, in nanoseconds.
        var hubIsExcusedUntil: UInt64 = 0
    }

    let port: UInt16
    private let shared = Mutex(Shared())
    private let thread = Mutex<BackgroundThread?>(nil)

    convenience init(hubPort: UInt16) throws { try self.init(hubs: [.loopback(port: hubPort)]) }

    /// - Parameter hubs: addresses of the hubs; the proxy connects to them in turn.
    init(hubs: [SocketAddress]) throws {
        let listener = try StreamSocket.listen(on: .loopback(port: 0), backlog: 1024)
        port = try StreamSocket.localAddress(of: listener).port
        let started = try BackgroundThread("proxy") { [self] in
            do {
                var loop = try ProxyLoop(listener: listener, hubs: hubs)
                loop.run(self)
            } catch {
                shared.withLock { $0.outcome.unexplained.append((Clock.monotonicNanoseconds(), "no proxy: \(error)")) }
            }
        }
        thread.withLock { $0 = started }
    }

    func order(_ deed: Deed, oneIn: Int, seed: UInt64) {
        shared.withLock { $0.orders.append(Order(deed: deed, oneIn: oneIn, seed: seed)) }
    }

    /// Allows the hub to close any connection from now on, for this time.
    func excuseHub(milliseconds: Int) {
        let until = Clock.monotonicNanoseconds() + UInt64(milliseconds) * 1_000_000
        shared.withLock { $0.hubIsExcusedUntil = max($0.hubIsExcusedUntil, until) }
    }

    /// Ends the hub's excuse four seconds from now, because the hub runs again. A starting hub answers a client that it
    /// refuses only after two seconds, so the excuse must last longer than that.
    func hubIsWell() {
        let until = Clock.monotonicNanoseconds() + 4_000_000_000
        shared.withLock { $0.hubIsExcusedUntil = until }
    }

    var outcome: Outcome { shared.withLock { $0.outcome } }

    func close() {
        shared.withLock { $0.isOver = true }
        thread.withLock { thread in
            thread?.join()
            thread = nil
        }
    }

    // MARK: For its loop

    fileprivate var isOver: Bool { shared.withLock { $0.isOver } }

    fileprivate func takeOrders() -> [Order] {
        shared.withLock { shared in
            defer { shared.orders = [] }
            return shared.orders
        }
    }

    fileprivate func note(connections: Int = 0, bytesLost: Int = 0, touched: Int = 0) {
        shared.withLock { shared in
            shared.outcome.connections += connections
            shared.outcome.bytesLost += bytesLost
            shared.outcome.touched += touched
        }
    }

    /// Maximum nanoseconds by which a busy machine may delay a starting hub's refusal of a connection.
    private static let latestRefusal: UInt64 = 10_000_000_000

    /// Records that the hub closed a connection. `said` has the hub's last bytes, and `since` the monotonic time at
    /// which the connection began. A hub that is starting refuses connections. Such a refusal is excused if the
    /// connection began during the excuse, even if the refusal arrives after it.
    fileprivate func hubClosed(_ said: String, since: UInt64) {
        let now = Clock.monotonicNanoseconds()
        let moment = said.contains("is starting\"}") ? max(since, now - min(now, Self.latestRefusal)) : now
        shared.withLock { if moment > $0.hubIsExcusedUntil { $0.outcome.unexplained.append((now, said)) } }
    }
}

/// Connection of a client, with the connection that the proxy opened to the hub for it.
private struct Link {
    /// Maximum number of bytes that the proxy buffers for a side that does not accept them.
    static let roomBytes = 128 << 10
    /// Bytes that a slow link passes on at a time.
    static let slowBytes = 1500

    /// Maximum number of bytes in `said`: enough for a close frame with its reason, or for the end of a refusal.
    static let saidBytes = 200

    let client: Int32
    let hub: Int32
    let since = Clock.monotonicNanoseconds()
    /// Last bytes that the hub sent.
    var said: [UInt8] = []
    var toClient: [UInt8] = []
    var toHub: [UInt8] = []
    var isConnected = false
    var heldUntil: UInt64 = 0
    var slowUntil: UInt64 = 0
    var slowPause: UInt64 = 0
    var swallowsUntil: UInt64 = 0
    /// True if the link was disturbed in a way that may make the hub close it.
    var isTouched = false
    var watchedForClient = Epoll.Events()
    var watchedForHub: Epoll.Events = [.readable, .writable]

    func wantedForClient(_ now: UInt64) -> Epoll.Events {
        var events = Epoll.Events()
        if toHub.count < Self.roomBytes, isConnected, now >= heldUntil { events.insert(.readable) }
        if !toClient.isEmpty, now >= heldUntil { events.insert(.writable) }
        return events
    }

    func wantedForHub(_ now: UInt64) -> Epoll.Events {
        var events = Epoll.Events()
        if toClient.count < Self.roomBytes { events.insert(.readable) }
        if !isConnected || (!toHub.isEmpty && now >= heldUntil) { events.insert(.writable) }
        return events
    }
}

/// Loop of the proxy's thread.
private struct ProxyLoop: ~Copyable {
    private static let listenerKey = UInt64.max

    private let epoll: Epoll
    private let listener: Int32
    private let hubs: [SocketAddress]
    private var accepted = 0
    private var links: [UInt64: Link] = [:]
    private var nextKey: UInt64 = 0
    /// Connections to the hub whose client side has been cut. Each is reset at `until` (monotonic, in nanoseconds).
    private var orphans: [(descriptor: Int32, until: UInt64)] = []

    init(listener: Int32, hubs: [SocketAddress]) throws {
        let epoll = try Epoll()
        try epoll.add(listener, .readable, key: Self.listenerKey)
        self.epoll = epoll
        self.listener = listener
        self.hubs = hubs
    }

    mutating func run(_ proxy: FaultyProxy) {
        while !proxy.isOver {
            for index in 0..<epoll.wait(milliseconds: 10) {
                let (key, events) = epoll.event(index)
                if key == Self.listenerKey { accept(proxy) } else { handle(key / 2, key % 2 == 1, events, proxy) }
            }
            for order in proxy.takeOrders() { obey(order, proxy) }
            goOn(proxy)
        }
        for link in links.values {
            StreamSocket.close(link.client)
            StreamSocket.close(link.hub)
        }
        for orphan in orphans { StreamSocket.close(orphan.descriptor) }
        StreamSocket.close(listener)
    }

    private mutating func accept(_ proxy: FaultyProxy) {
        while case .accepted(let client, _) = StreamSocket.accept(from: listener) {
            let hub = hubs[accepted % hubs.count]
            accepted += 1
            guard let toHub = try? StreamSocket.connect(to: hub) else {
                StreamSocket.reset(client)
                continue
            }
            StreamSocket.prepare(client, sendBuffer: 64 << 10)
            StreamSocket.prepare(toHub, sendBuffer: nil)
            links[nextKey] = Link(client: client, hub: toHub)
            try? epoll.add(client, [], key: nextKey * 2)
            try? epoll.add(toHub, [.readable, .writable], key: nextKey * 2 + 1)
            nextKey += 1
            proxy.note(connections: 1)
        }
    }

    private mutating func handle(_ key: UInt64, _ isHub: Bool, _ events: Epoll.Events, _ proxy: FaultyProxy) {
        guard var link = links[key] else { return }
        if isHub, !link.isConnected {
            guard StreamSocket.pendingFailure(of: link.hub) == 0 else { return end(key, link, nil, proxy) }
            link.isConnected = true
        }
        if events.contains(.readable) || events.contains(.hungUp) || events.contains(.failed) {
            let had = link.toClient.count
            let isOpen = isHub ? read(link.hub, into: &link.toClient) : read(link.client, into: &link.toHub)
            if link.toClient.count > had { link.said = Array(link.toClient[had...].suffix(Link.saidBytes)) }
            guard isOpen else {
                // The hub's last bytes still go to the client.
                if isHub { _ = write(&link.toClient, to: link.client, atMost: .max) }
                return end(key, link, isHub ? link.isTouched ? nil : Self.last(of: link) : nil, proxy)
            }
        }
        links[key] = link
        flush(key, proxy)
    }

    /// Returns the last bytes of the hub on this link as text, for a report.
    private static func last(of link: Link) -> String {
        guard link.isConnected else { return "" }
        let age = (Clock.monotonicNanoseconds() - link.since) / 1_000_000
        let said = String(decoding: link.said.map { (32..<127).contains($0) ? $0 : 46 }, as: UTF8.self)
        return "the hub closed a connection of \(age) ms that nothing had been done to; it said last: \(said)"
    }

    private func read(_ descriptor: Int32, into bytes: inout [UInt8]) -> Bool {
        var isOpen = true
        // SAFETY: the kernel writes within the buffer, and says how much.
        let more = unsafe [UInt8](unsafeUninitializedCapacity: 32 << 10) { buffer, used in
            switch unsafe StreamSocket.receive(descriptor, into: UnsafeMutableRawBufferPointer(buffer)) {
            case .moved(let count): used = count
            case .wouldBlock: used = 0
            case .finished, .failed:
                used = 0
                isOpen = false
            }
        }
        bytes += more
        return isOpen
    }

    private func write(_ bytes: inout [UInt8], to descriptor: Int32, atMost limit: Int) -> Bool {
        guard !bytes.isEmpty else { return true }
        let count = min(limit, bytes.count)
        // SAFETY: the kernel reads within the array inside the closure.
        let outcome = unsafe bytes.withUnsafeBytes { all in
            unsafe StreamSocket.send(descriptor, UnsafeRawBufferPointer(rebasing: all[..<count]))
        }
        switch outcome {
        case .moved(let count): bytes.removeFirst(count)
        case .wouldBlock: break
        case .finished, .failed: return false
        }
        return true
    }

    /// Passes on those buffered bytes that the orders allow, and updates the events for which the loop waits.
    private mutating func flush(_ key: UInt64, _ proxy: FaultyProxy) {
        guard var link = links[key] else { return }
        let now = Clock.monotonicNanoseconds()
        // Swallowed bytes are never passed on, and neither are later ones: the stream would have a hole.
        if link.swallowsUntil != 0 {
            proxy.note(bytesLost: link.toClient.count)
            link.toClient = []
        }
        if now >= link.heldUntil {
            let isSlow = now < link.slowUntil
            let limit = isSlow ? Link.slowBytes : Int.max
            let had = link.toClient.count + link.toHub.count
            guard write(&link.toClient, to: link.client, atMost: limit),
                !link.isConnected || write(&link.toHub, to: link.hub, atMost: limit)
            else {
                links[key] = link
                return end(key, link, nil, proxy)
            }
            if isSlow, link.toClient.count + link.toHub.count < had { link.heldUntil = now + link.slowPause }
        }
        // The hub may close a client that does not read.
        if link.toClient.count >= Link.roomBytes { link.isTouched = true }
        watch(key, &link, now)
        links[key] = link
    }

    private func watch(_ key: UInt64, _ link: inout Link, _ now: UInt64) {
        let (client, hub) = (link.wantedForClient(now), link.wantedForHub(now))
        if client != link.watchedForClient, (try? epoll.change(link.client, client, key: key * 2)) != nil {
            link.watchedForClient = client
        }
        if hub != link.watchedForHub, (try? epoll.change(link.hub, hub, key: key * 2 + 1)) != nil {
            link.watchedForHub = hub
        }
    }

    /// Closes both sides of a link. Reports `reproach`, the complaint about the hub, if it is not nil.
    private mutating func end(_ key: UInt64, _ link: Link, _ reproach: String?, _ proxy: FaultyProxy) {
        links[key] = nil
        StreamSocket.close(link.client)
        StreamSocket.close(link.hub)
        if let reproach, !reproach.isEmpty { proxy.hubClosed(reproach, since: link.since) }
    }

    private mutating func obey(_ order: FaultyProxy.Order, _ proxy: FaultyProxy) {
        var chance = VerifyChance(order.seed, lane: 7)
        let now = Clock.monotonicNanoseconds()
        var touched = 0
        for key in links.keys.sorted() where chance.once(in: order.oneIn) {
            guard var link = links[key] else { continue }
            touched += 1
            link.isTouched = true
            switch order.deed {
            case .hold(let milliseconds): link.heldUntil = now + UInt64(milliseconds) * 1_000_000
            case .slow(let milliseconds, let pause):
                link.slowUntil = now + UInt64(milliseconds) * 1_000_000
                link.slowPause = UInt64(pause) * 1_000_000
            case .swallow(let milliseconds): link.swallowsUntil = now + UInt64(milliseconds) * 1_000_000
            case .cut:
                cut(key, link, chance.once(in: 2) ? nil : now + UInt64(chance.number(100...3000)) * 1_000_000, proxy)
                continue
            }
            watch(key, &link, now)
            links[key] = link
        }
        proxy.note(touched: touched)
    }

    /// Cuts a link. Resets the client's side immediately, and the hub's side at `hubHearsAt`, or immediately if that is
    /// nil.
    private mutating func cut(_ key: UInt64, _ link: Link, _ hubHearsAt: UInt64?, _ proxy: FaultyProxy) {
        links[key] = nil
        proxy.note(bytesLost: link.toClient.count)
        StreamSocket.reset(link.client)
        guard let hubHearsAt else { return StreamSocket.reset(link.hub) }
        epoll.remove(link.hub)
        orphans.append((link.hub, hubHearsAt))
    }

    /// Ends the delays of links, and cuts links, when their time has come.
    private mutating func goOn(_ proxy: FaultyProxy) {
        let now = Clock.monotonicNanoseconds()
        for (key, link) in links {
            if link.swallowsUntil != 0, now >= link.swallowsUntil {
                cut(key, link, now + 1_500_000_000, proxy)
            } else if link.heldUntil != 0, now >= link.heldUntil {
                links[key]?.heldUntil = 0
                flush(key, proxy)
            }
        }
        for orphan in orphans where now >= orphan.until { StreamSocket.reset(orphan.descriptor) }
        orphans.removeAll { now >= $0.until }
    }
}

import Bytes
import Synchronization
import System
import WebSocket

/// All clients of the verifier that are written in Swift (`OwnClient`). One thread runs them.
final class OwnClients: Sendable {
    enum Deed: Sendable {
        /// Makes clients stop reading for this time.
        case freeze(milliseconds: Int)
        /// Gives clients a new token, which they send in their channel.
        case renew
        /// Gives plain clients a token that expires after two seconds.
        case expire
    }

    struct Order: Sendable {
        var deed: Deed
        var oneIn: Int
        var seed: UInt64
    }

    private struct Shared {
        var orders: [Order] = []
        var isOver = false
        var joined = 0
    }

    private let shared = Mutex(Shared())
    private let thread = Mutex<BackgroundThread?>(nil)

    init(_ clients: [OwnClient], port: UInt16, secret: String, notebook: Notebook) throws {
        let started = try BackgroundThread("clients") { [self] in
            do {
                var loop = try OwnClientLoop(clients, port: port, secret: Array(secret.utf8), notebook: notebook)
                loop.run(self)
            } catch {
                notebook.add(trouble: .stuck, "no clients: \(error)", at: Clock.monotonicNanoseconds())
            }
        }
        thread.withLock { $0 = started }
    }

    func order(_ deed: Deed, oneIn: Int, seed: UInt64) {
        shared.withLock { $0.orders.append(Order(deed: deed, oneIn: oneIn, seed: seed)) }
    }

    /// Number of clients whose channel is joined.
    var joined: Int { shared.withLock { $0.joined } }

    func close() {
        shared.withLock { $0.isOver = true }
        thread.withLock { thread in
            thread?.join()
            thread = nil
        }
    }

    fileprivate var isOver: Bool { shared.withLock { $0.isOver } }

    /// Removes and returns the orders of the faults, and records the number of joined clients.
    fileprivate func takeOrders(joined: Int) -> [Order] {
        shared.withLock { shared in
            shared.joined = joined
            defer { shared.orders = [] }
            return shared.orders
        }
    }
}

/// Loop of the thread that runs the clients.
private struct OwnClientLoop: ~Copyable {
    private static let key = "dGhlIHNhbXBsZSBub25jZQ=="
    private static let mask: UInt32 = 0x5a3c_96f1
    private static let second: UInt64 = 1_000_000_000
    private static let largestMessage = 1 << 20

    private let epoll: Epoll
    private let server: SocketAddress
    private let secret: [UInt8]
    private let notebook: Notebook
    private var clients: [OwnClient]
    private var chance = VerifyChance(0, lane: 8)
    private var outgoing = ByteWriter()
    private var input = ByteWriter(capacity: 64 << 10)

    init(_ clients: [OwnClient], port: UInt16, secret: [UInt8], notebook: Notebook) throws {
        epoll = try Epoll()
        server = .loopback(port: port)
        self.clients = clients
        self.secret = secret
        self.notebook = notebook
    }

    mutating func run(_ owner: OwnClients) {
        while !owner.isOver {
            for index in 0..<epoll.wait(milliseconds: 20) {
                let (key, events) = epoll.event(index)
                handle(Int(key), events)
            }
            let joined = clients.count { if case .joined = $0.channel { true } else { false } }
            for order in owner.takeOrders(joined: joined) { obey(order) }
            let now = Clock.monotonicNanoseconds()
            for index in clients.indices { goOn(index, now) }
        }
        for client in clients where client.descriptor >= 0 { StreamSocket.close(client.descriptor) }
    }

    private mutating func obey(_ order: OwnClients.Order) {
        var chance = VerifyChance(order.seed, lane: 9)
        let now = Clock.monotonicNanoseconds()
        for index in clients.indices where chance.once(in: order.oneIn) && clients[index].line == .open {
            switch order.deed {
            case .freeze(let milliseconds):
                clients[index].frozenUntil = now + UInt64(milliseconds) * 1_000_000
                notebook.add(clients[index].number, now, .stands)
                try? epoll.change(clients[index].descriptor, [], key: UInt64(index))
            case .renew: renew(index, seconds: 86_400)
            case .expire where clients[index].kind == .plain && !clients[index].isExpiring:
                renew(index, seconds: 2)
                if case .joined = clients[index].channel { clients[index].isExpiring = true }
            case .expire: break
            }
        }
    }

    private mutating func renew(_ index: Int, seconds: Int64) {
        let token = clients[index].token(secret: secret, seconds: seconds)
        if let text = clients[index].renewal(token: token) { send(index, text) }
    }

    /// Performs the actions of a client that are due: connects, joins, sends a heartbeat, reads again after a freeze,
    /// or closes a connection that does not progress.
    private mutating func goOn(_ index: Int, _ now: UInt64) {
        switch clients[index].line {
        case .away(let until): if now >= until { connect(index) }
        case .connecting, .upgrading: if now >= clients[index].nextBeat { lose(index) }
        case .open:
            if clients[index].frozenUntil != 0 {
                guard now >= clients[index].frozenUntil else { return }
                clients[index].frozenUntil = 0
                try? epoll.change(clients[index].descriptor, .readable, key: UInt64(index))
            }
            if now >= clients[index].nextBeat {
                clients[index].nextBeat = now + 20 * Self.second
                send(index, #"[null,"\#(clients[index].nextRef())","phoenix","heartbeat",{}]"#)
            }
            goOnWithChannel(index, now)
        }
    }

    private mutating func goOnWithChannel(_ index: Int, _ now: UInt64) {
        switch clients[index].channel {
        case .joined: break
        case .joining(_, let until): if now >= until { lose(index) }
        case .retrying(let at): if now >= at { join(index, now) }
        case .none: join(index, now)
        }
    }

    private mutating func join(_ index: Int, _ now: UInt64) {
        guard clients[index].line == .open else { return }
        let token = clients[index].token(secret: secret, seconds: 86_400)
        send(index, clients[index].join(token: token, now: now))
    }

    private mutating func connect(_ index: Int) {
        let now = Clock.monotonicNanoseconds()
        guard let descriptor = try? StreamSocket.connect(to: server) else {
            clients[index].line = .away(until: now + Self.second)
            return
        }
        StreamSocket.prepare(descriptor, sendBuffer: nil)
        clients[index].descriptor = descriptor
        clients[index].line = .connecting
        clients[index].nextBeat = now + 20 * Self.second
        clients[index].beginAnew()
        try? epoll.add(descriptor, [.readable, .writable], key: UInt64(index))
    }

    private mutating func lose(_ index: Int) {
        guard clients[index].descriptor >= 0 else { return }
        StreamSocket.close(clients[index].descriptor)
        clients[index].descriptor = -1
        clients[index].incomplete = []
        clients[index].channel = .none
        clients[index].isExpiring = false
        clients[index].frozenUntil = 0
        let pause = UInt64(chance.number(100...1500)) * 1_000_000
        clients[index].line = .away(until: Clock.monotonicNanoseconds() + pause)
    }

    private mutating func handle(_ index: Int, _ events: Epoll.Events) {
        switch clients[index].line {
        case .away: return
        case .connecting: upgrade(index)
        case .upgrading, .open: receive(index)
        }
    }

    private mutating func upgrade(_ index: Int) {
        guard StreamSocket.pendingFailure(of: clients[index].descriptor) == 0 else { return lose(index) }
        try? epoll.change(clients[index].descriptor, .readable, key: UInt64(index))
        clients[index].line = .upgrading
        let token = clients[index].token(secret: secret, seconds: 86_400)
        let name = clients[index].clientID.map { "&client_id=" + $0 } ?? ""
        outgoing.removeAll()
        outgoing.append(
            "GET /socket/websocket?vsn=2.0.0&apikey=\(token)\(name) HTTP/1.1\r\nHost: \(server)\r\nUpgrade: websocket\r\n"
                + "Connection: Upgrade\r\nSec-WebSocket-Key: \(Self.key)\r\nSec-WebSocket-Version: 13\r\n\r\n")
        transmit(index)
    }

    private mutating func receive(_ index: Int) {
        guard clients[index].frozenUntil == 0 else { return }
        input.removeAll()
        input.append(clients[index].incomplete)
        clients[index].incomplete = []
        var outcome = Transfer.wouldBlock
        let descriptor = clients[index].descriptor
        // SAFETY: the kernel writes within the room that the writer made.
        _ = unsafe input.append(upTo: 64 << 10) { room in
            outcome = unsafe StreamSocket.receive(descriptor, into: room)
            return if case .moved(let count) = outcome { count } else { 0 }
        }
        let isOpen = outcome != .finished && { if case .failed = outcome { false } else { true } }()
        let rest = take(index)
        guard isOpen, clients[index].line != .away(until: 0), clients[index].descriptor == descriptor else {
            return lose(index)
        }
        guard input.count - rest <= Self.largestMessage else { return lose(index) }
        if rest < input.count { clients[index].incomplete = input.bytes.extracting(rest..<input.count).copied() }
    }

    /// Handles each complete frame in `input`, for the client at this index. Returns the offset of the remaining bytes.
    private mutating func take(_ index: Int) -> Int {
        let now = Clock.monotonicNanoseconds()
        var at = 0
        if clients[index].line == .upgrading {
            guard let end = input.bytes.firstOffset(of: "\r\n\r\n", from: 0) else { return 0 }
            guard input.bytes.has("HTTP/1.1 101", at: 0) else {
                lose(index)
                return input.count
            }
            at = end + 4
            clients[index].line = .open
            clients[index].nextBeat = now + 20 * Self.second
        }
        while clients[index].line == .open, let frame = ServerFrame(input.bytes, at: at) {
            take(index, frame, now)
            at = frame.payload.upperBound
        }
        return at
    }

    private mutating func take(_ index: Int, _ frame: ServerFrame, _ now: UInt64) {
        let number = clients[index].number
        let payload = input.bytes.extracting(frame.payload).copied()
        switch frame.kind {
        case .message:
            let (note, trouble) = clients[index].hear(payload.rawBytes, now: now)
            if let note { notebook.add(number, now, note) }
            if let trouble {
                notebook.add(
                    trouble: .unexplainedClose, "client \(number) (\(clients[index].kind.rawValue)): \(trouble)",
                    at: now)
            }
        case .ping:
            outgoing.removeAll()
            // SAFETY: as above.
            unsafe ClientFrameEncoder.appendPong(payload.span.bytes, mask: Self.mask, to: &outgoing)
            transmit(index)
        case .pong: break
        case .close: lose(index)
        case .unexpected:
            notebook.add(trouble: .wrongValue, "client \(number): a frame that a server does not send", at: now)
            lose(index)
        }
    }

    private mutating func send(_ index: Int, _ text: String) {
        outgoing.removeAll()
        var payload = ByteWriter(capacity: 1024)
        payload.append(text)
        ClientFrameEncoder.append(.text, payload.bytes, mask: Self.mask, to: &outgoing)
        transmit(index)
    }

    /// Sends the content of `outgoing` to the hub. Closes the connection if the socket does not accept all of it, which
    /// is rare.
    private mutating func transmit(_ index: Int) {
        guard clients[index].descriptor >= 0 else { return }
        let (descriptor, wanted) = (clients[index].descriptor, outgoing.count)
        // SAFETY: the kernel reads the writer's bytes inside the closure.
        let outcome = unsafe outgoing.bytes.withUnsafeBytes { unsafe StreamSocket.send(descriptor, $0) }
        if outcome != .moved(wanted) { lose(index) }
    }
}

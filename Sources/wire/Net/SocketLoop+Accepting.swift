import Crypto
import Diagnostics
import System

/// Acceptance of new connections, their TLS handshakes, and refusals when descriptors or memory are short.
extension SocketLoop {
    /// Stops accepting connections after those that already wait. The kernel refuses later ones.
    public func stopAccepting() {
        for index in listeners.descriptors.indices { acceptBatch(index) }
        listeners.close()
    }

    /// Accepts a limited number of connections from one listener, so that many new connections do not delay the
    /// existing ones.
    func acceptBatch(_ index: Int) {
        for _ in 0..<Limits.acceptBatch {
            guard let listener = listeners[index] else { return }
            switch StreamSocket.accept(from: listener) {
            case .accepted(let descriptor, let peer): take(descriptor, peer)
            case .lost: continue
            case .nobodyWaits: return
            case .outOfDescriptors(let code):
                refuse(.outOfDescriptors, code)
                guard listeners.refuseOneConnection(listener) else {
                    return listeners.rest(connections.epoll, now: now)
                }
            case .outOfMemory(let code):
                refuse(.outOfMemory, code)
                return listeners.rest(connections.epoll, now: now)
            }
        }
    }

    func take(_ descriptor: Int32, _ peer: PeerAddress) {
        guard let seat = table.take(descriptor: descriptor, stage: .open, now: now) else {
            refuse(.tooManyConnections, 0)
            return StreamSocket.reset(descriptor)
        }
        StreamSocket.prepare(descriptor, sendBuffer: settings.sendBuffer)
        do throws(SystemError) {
            try connections.startWatching(seat)
        } catch {
            refuse(.outOfMemory, error.code)
            return connections.end(seat, .failed(code: error.code), byReset: true)
        }
        metrics.connectionsAccepted.add()
        guard let tls else { return open(seat, from: peer) }
        if let session = tls.current.session(on: descriptor) {
            connections.startHandshake(seat, Secured(session: session, peer: peer))
        } else {
            refuse(.outOfMemory, 0)
            connections.end(seat, .tlsFailed, byReset: true)
        }
    }

    private func open(_ seat: Int, from peer: PeerAddress) {
        table[seat].set(.wasOpened)
        if let limit = settings.idleLimit { connections.setIdleLimit(limit.nanoseconds, seat) }
        application.opened(table.id(of: seat), from: peer, isSecure: table[seat].session != 0)
    }

    /// Opens a connection without a socket, whose output `witness` receives. Returns nil if the table is full.
    public func open(watchedBy witness: any FrameWitness) -> ConnectionID? {
        guard let seat = table.take(descriptor: -1, stage: .open, now: now) else { return nil }
        self.witness = witness
        let connection = table.id(of: seat)
        open(seat, from: .loopback(port: 0))
        return connection
    }

    func continueHandshake(_ seat: Int) {
        guard let secured = connections.secured(seat) else { return }
        switch secured.session.handshake() {
        case .moved:
            connections.finishHandshake(seat)
            if table[seat].stage == .open { open(seat, from: secured.peer) }
        case .wantsRead: connections.watch(seat, for: .readable)
        case .wantsWrite: connections.watch(seat, for: .writable)
        case .finished, .failed: failHandshake(seat)
        }
    }

    func failHandshake(_ seat: Int) {
        refuse(.handshake, 0)
        connections.end(seat, .tlsFailed, byReset: false)
    }

    /// Counts a refused connection, and logs one from time to time. Failed handshakes are only counted.
    private func refuse(_ reason: ProcessMetrics.RefusalReason, _ code: Int32) {
        metrics.connectionsRefused[reason].add()
        guard reason != .handshake, listeners.isRefusalWorthALine(now: now) else { return }
        Log.shared.warning(
            "refusing connections",
            [
                LogField.reason(reason.rawValue), LogField.errno(code), LogField.count(table.count),
                LogField.hint("raise the limit of open files, or max_connections"),
            ])
    }
}

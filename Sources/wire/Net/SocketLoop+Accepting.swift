import Diagnostics
import System

/// Acceptance of new connections, and refusals if resources are short.
extension SocketLoop {
    func watchListeners() throws(SystemError) {
        for (index, listener) in listeners.enumerated() {
            try epoll.add(listener, .readable, key: Key.listener(index: index))
        }
    }

    /// Stops accepting. Accepts the connections that already wait; the kernel refuses later ones.
    public func stopAccepting() {
        guard !listeners.isEmpty else { return }
        for index in listeners.indices {
            acceptBatch(index)
            StreamSocket.close(listeners[index])
        }
        listeners = []
        acceptRestsUntil = 0
    }

    /// Accepts a limited number of connections, so that many new ones do not delay the existing ones.
    func acceptBatch(_ index: Int) {
        guard index >= 0, index < listeners.count else { return }
        for _ in 0..<Limits.acceptBatch {
            switch StreamSocket.accept(from: listeners[index]) {
            case .accepted(let descriptor, let peer): take(descriptor, peer)
            case .lost: continue
            case .nobodyWaits: return
            case .outOfDescriptors(let code):
                refuse(.outOfDescriptors, code)
                guard turnOneAway(index) else { return restAccepting() }
            case .outOfMemory(let code):
                refuse(.outOfMemory, code)
                return restAccepting()
            }
        }
    }

    func take(_ descriptor: Int32, _ peer: PeerAddress) {
        guard let seat = table.take(descriptor: descriptor, stage: .open, now: now) else {
            refuse(.tooManyConnections, 0)
            return StreamSocket.reset(descriptor)
        }
        StreamSocket.prepare(descriptor, sendBuffer: settings.sendBuffer)
        let events: Epoll.Events = [.readable, .peerFinished]
        do throws(SystemError) {
            try epoll.add(descriptor, events, key: Key.connection(table.id(of: seat)))
        } catch {
            refuse(.outOfMemory, error.code)
            return end(seat, .failed(code: error.code), byReset: true)
        }
        table[seat].watched = UInt16(truncatingIfNeeded: events.rawValue)
        metrics.connectionsAccepted.add()
        guard let tls else { return open(seat, from: peer) }
        if !startHandshake(seat, peer, tls) {
            refuse(.outOfMemory, 0)
            end(seat, .tlsFailed, byReset: true)
        }
    }

    func open(_ seat: Int, from peer: PeerAddress) {
        table[seat].flags.insert(.wasOpened)
        if let limit = settings.idleLimit { setIdleLimit(limit.nanoseconds, seat) }
        application.opened(table.id(of: seat), from: peer, isSecure: table[seat].session != 0)
    }

    // MARK: Refusals

    /// Accepts and closes one waiting connection, with the descriptor held in reserve. Without a free descriptor no
    /// connection can be accepted, and the listener would stay readable for ever.
    private func turnOneAway(_ index: Int) -> Bool {
        guard let spare = reserve else { return false }
        StreamSocket.close(spare)
        reserve = nil
        if case .accepted(let descriptor, _) = StreamSocket.accept(from: listeners[index]) {
            StreamSocket.reset(descriptor)
        }
        reserve = DescriptorTable.duplicate(bell.descriptor)
        return reserve != nil
    }

    private func restAccepting() {
        for listener in listeners { epoll.remove(listener) }
        acceptRestsUntil = now + Limits.acceptRest.nanoseconds
    }

    func resumeAcceptingIfDue() {
        guard acceptRestsUntil > 0, now >= acceptRestsUntil else { return }
        if reserve == nil { reserve = DescriptorTable.duplicate(bell.descriptor) }
        acceptRestsUntil = 0
        do throws(SystemError) { try watchListeners() } catch { restAccepting() }
    }

    /// Counts every refusal, and logs one once in a while.
    func refuse(_ reason: ProcessMetrics.RefusalReason, _ code: Int32) {
        metrics.connectionsRefused[reason].add()
        guard reason != .handshake,
            lastRefusalLine == 0 || now - lastRefusalLine > Limits.troubleReminderInterval.nanoseconds
        else { return }
        lastRefusalLine = now
        Log.shared.warning(
            "refusing connections",
            [
                LogField.reason(reason.rawValue), LogField.errno(code), LogField.count(table.count),
                LogField.hint("raise the limit of open files, or max connections"),
            ])
    }
}

extension Duration {
    /// Duration in whole nanoseconds, limited to the range from zero to 64 bits.
    var nanoseconds: UInt64 {
        let (seconds, attoseconds) = components
        guard seconds >= 0, attoseconds >= 0 else { return 0 }
        let (whole, overflow) = UInt64(seconds).multipliedReportingOverflow(by: 1_000_000_000)
        return overflow ? .max : whole &+ UInt64(attoseconds / 1_000_000_000)
    }
}

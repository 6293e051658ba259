import Bytes

extension LoadGenerator {
    /// Joins further clients, until the maximum number of joins is in progress.
    mutating func joinMore(_ topic: ClientText, _ payload: ClientText, _ bindsChanges: Bool, _ next: Int) {
        var next = next
        while next < clients.count, inFlight < window {
            join(topic, payload, next)
            // If a client was lost, the task has ended.
            guard case .joining = task else { return }
            next += 1
        }
        task = .joining(topic: topic, payload: payload, bindsChanges: bindsChanges, next: next)
        if next == clients.count, inFlight == 0 { finish("joined", clients.count { $0.phase == .subscribed }) }
    }

    mutating func join(_ topic: ClientText, _ payload: ClientText, _ index: Int) {
        guard clients[index].phase == .open || clients[index].phase == .subscribed else {
            return fail("client \(firstNumber + index) cannot join now")
        }
        clients[index].phase = .joining
        inFlight += 1
        var message = ByteWriter()
        message.append("[\"\(topics.count)\",\"\(topics.count)\",\"")
        topic.append(client: firstNumber + index, to: &message)
        message.append("\",\"phx_join\",")
        payload.append(client: firstNumber + index, to: &message, signature: signature)
        message.append("]")
        send(index, message)
    }

    /// Records that the server accepted the join of the client at this index.
    mutating func joined(_ index: Int) {
        let bindsChanges: Bool
        switch task {
        case .joining(_, _, let binds, _): bindsChanges = binds
        case .returning: bindsChanges = true
        case .idle, .connecting, .awaiting, .talking, .tracking: return
        }
        guard clients[index].phase == .joining else { return }
        clients[index].phase = bindsChanges ? .subscribing : .subscribed
        if !bindsChanges { inFlight -= 1 }
    }

    /// Records that the server sends changes to the client at this index from now on.
    mutating func subscribed(_ index: Int) {
        // A correct server does not send this before its reply to the join.
        guard clients[index].phase == .subscribing else {
            if clients[index].phase == .joining { tally.malformed += 1 }
            return
        }
        clients[index].phase = .subscribed
        inFlight -= 1
    }

    mutating func refused(_ index: Int, _ text: RawSpan) {
        switch task {
        case .joining, .returning: fail("client \(firstNumber + index) was refused: " + text.text.prefix(400))
        // The server tells a client that has left that its channel is closed.
        case .tracking where clients[index].phase == .open: break
        case .idle, .connecting, .awaiting, .talking, .tracking: tally.malformed += 1
        }
    }
}

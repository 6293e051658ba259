import Bytes

extension LoadGenerator {
    /// Joins more clients, as many as may be in progress at once.
    mutating func joinMore(_ topic: ClientText, _ payload: ClientText, _ bindsChanges: Bool, _ next: Int) {
        var next = next
        while next < clients.count, inFlight < window {
            join(topic, payload, next)
            // The loss of a client ends the task.
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

    /// Notes that the server accepted the join.
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

    /// Notes that the client's changes come from now on.
    mutating func subscribed(_ index: Int) {
        // The server would send this before the reply only by mistake.
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
        // A client that has left is told that its channel is closed.
        case .tracking where clients[index].phase == .open: break
        case .idle, .connecting, .awaiting, .talking, .tracking: tally.malformed += 1
        }
    }
}

/// View in which a member sees a change.
struct Seen {
    let view: UInt32
    /// Index of the view without the old row; nil unless `question` asks PostgreSQL if the member may see the old row.
    var masked: UInt32?
    var question: PendingQuestion?

    func isSame(as other: Seen) -> Bool { view == other.view && question === other.question }
}

/// Channel with the bindings that match one change, collected before delivery. Used for channels with several bindings
/// or with deliveries that wait.
struct MatchedChannel {
    let listener: UInt32
    let seen: Seen
    var isDeparture = false
    var certain: BindingSet = 0
    var deferredBindings: [DeferredBinding] = []
    /// Index in `MatchedChannels` of the channel's previous entry for the same change, with another view.
    let earlier: UInt32?
}

/// Channels that match the current change. A channel has one entry for each view in which it sees the change.
struct MatchedChannels {
    private(set) var all: [MatchedChannel] = []

    mutating func removeAll() { all.removeAll(keepingCapacity: true) }

    mutating func add(_ member: Member, _ seen: Seen, _ recipients: inout [Recipient], _ change: UInt64) {
        let place = place(of: member.listener, seen, isDeparture: false, &recipients, change)
        all[place].certain |= 1 << BindingSet(member.binding)
        assert(all[place].listener == member.listener, "a binding is its own channel's")
    }

    mutating func ask(
        _ member: Member, _ seen: Seen, _ question: PendingQuestion, _ recipients: inout [Recipient], _ change: UInt64
    ) {
        let place = place(of: member.listener, seen, isDeparture: false, &recipients, change)
        all[place].deferredBindings.append(DeferredBinding(binding: member.binding, question: question))
        assert(all[place].listener == member.listener, "a binding is its own channel's")
    }

    /// Adds a departure: an update of a row that was in the member's view. The client is notified unless the row is
    /// still in its view. The caller must have added all matches of the new row before.
    mutating func depart(
        _ member: Member, _ view: UInt32, _ question: PendingQuestion?, _ recipients: inout [Recipient],
        _ change: UInt64
    ) {
        var stay: PendingQuestion?
        var known = newest(of: member.listener, recipients, change)
        while let place = known {
            let touch = all[Int(place)]
            known = touch.earlier
            if touch.isDeparture { continue }
            if touch.certain & 1 << BindingSet(member.binding) != 0 { return }
            stay = stay ?? touch.deferredBindings.first { $0.binding == member.binding }?.question
        }
        let place = place(of: member.listener, Seen(view: view), isDeparture: true, &recipients, change)
        if let question {
            all[place].deferredBindings.append(DeferredBinding(binding: member.binding, question: question))
        }
        if let stay {
            all[place].deferredBindings.append(DeferredBinding(binding: member.binding, question: stay, wanted: false))
        }
        if question == nil, stay == nil { all[place].certain |= 1 << BindingSet(member.binding) }
    }

    private func newest(of listener: UInt32, _ recipients: [Recipient], _ change: UInt64) -> UInt32? {
        let recipient = recipients[Int(listener)]
        guard recipient.stamp == change else { return nil }
        precondition(all[Int(recipient.touch)].listener == listener, "a channel finds what is its own")
        return recipient.touch
    }

    private mutating func place(
        of listener: UInt32, _ seen: Seen, isDeparture: Bool, _ recipients: inout [Recipient], _ change: UInt64
    ) -> Int {
        let newest = newest(of: listener, recipients, change)
        var known = newest
        while let place = known {
            let touch = all[Int(place)]
            if touch.seen.isSame(as: seen), touch.isDeparture == isDeparture { return Int(place) }
            known = touch.earlier
        }
        assert(newest.map { $0 < all.count } ?? true, "what came before is there")
        all.append(MatchedChannel(listener: listener, seen: seen, isDeparture: isDeparture, earlier: newest))
        recipients[Int(listener)].stamp = change
        recipients[Int(listener)].touch = UInt32(all.count - 1)
        return all.count - 1
    }
}

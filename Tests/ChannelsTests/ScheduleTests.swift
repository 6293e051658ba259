import Bytes
import Channels
import TestSupport
import Testing

/// Tests of random schedules: whatever the order of events, every channel must have the same life cycle.
@Suite(.within(minutes: 5)) struct ScheduleTests {
    /// State of one channel as a client would see it from the actions.
    private struct Watch {
        var joining: Set<ChannelID> = []
        var open: Set<ChannelID> = []
        var ended: Set<ChannelID> = []

        mutating func see(_ action: ChannelAction) -> Bool {
            switch action {
            case .startJoin(let id): return joining.insert(id).inserted && !open.contains(id) && !ended.contains(id)
            case .push(let id), .startRefresh(let id, _): return open.contains(id)
            case .stop(let id, _):
                let isKnown = joining.remove(id) != nil || open.remove(id) != nil
                return isKnown && ended.insert(id).inserted
            default: return true
            }
        }
    }

    @Test(arguments: seeds(30))
    func `no push before a join is accepted, none after it ended`(seed: Seed) {
        var random = SeededRandom(seed: seed)
        let talk = Conversation(channels: 3, waiting: 6, waitingBytes: 200)
        var watch = Watch()
        for step in 0..<600 {
            let actions: [ChannelAction]
            let known = Array(watch.joining.union(watch.open)).sorted { $0.incarnation < $1.incarnation }
            switch Int.random(in: 0..<10, using: &random) {
            case 0...5:
                let request = random.pick([ChannelRequest.join, .join, .leave, .push, .token, .noToken, .heartbeat])
                actions = talk.say(
                    request, "realtime:" + random.pick(["a", "b", "c", "d"]),
                    joinRef: random.pick(["", "\(step)", "1"]), ref: "\(step)", token: random.pick(["t", "u", "sb_x"]),
                    whole: "frame")
            case 6, 7:
                let id = known.isEmpty ? nil : random.pick(known)
                let accepted = id.flatMap { talk.succeed($0) }
                if let id, accepted != nil {
                    let isOpened = watch.joining.remove(id) != nil && watch.open.insert(id).inserted
                    #expect(isOpened, "step \(step): \(id)")
                }
                actions = accepted?.waiting ?? []
            case 8:
                // A failed join ends without a stop: only its checker has begun anything for it.
                let id = known.isEmpty ? nil : random.pick(known)
                actions = id.map { talk.fail($0) } ?? []
                if let id, watch.joining.remove(id) != nil { watch.ended.insert(id) }
            default: actions = known.isEmpty ? [] : talk.expel(random.pick(known))
            }
            for action in actions {
                let isInPlace = watch.see(action)
                #expect(isInPlace, "step \(step): \(action)")
            }
            #expect(talk.channelCount == watch.joining.count + watch.open.count)
            #expect(talk.channelCount <= 3)
        }
        #expect(Set(talk.goAway()) == Set(watch.joining.union(watch.open).map { ChannelAction.stop($0, .socketGone) }))
    }
}

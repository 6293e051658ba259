import Channels
import Delivery

/// Messages between the channels of one project on one loop.
struct LoopTalk: ~Copyable {
    var topics = TopicTable<TopicListener>()
    var frames: BroadcastFrames
    /// Broadcasts of this turn, for the other loops.
    var gathering = BroadcastGathering()
    /// Channels that wait for past messages, by ticket.
    var replaysWaiting: [UInt64: Channel] = [:]
    /// Channels, by place, whose topics' messages of the database were dropped in the turn of a follower.
    var channelsWithDroppedMessages: Set<UInt32> = []

    init(frames: consuming BroadcastFrames) { self.frames = frames }
}

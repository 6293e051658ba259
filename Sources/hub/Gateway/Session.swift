import Auth
import Channels
import Delivery
import Diagnostics
import Net
import Protocol
import WebSocket

/// One connection: first a request, then, if it asked for that, a WebSocket with its channels.
final class Session {
    enum Stage {
        /// Its next request is being read; so many bytes of it were searched for its end.
        case request(scanned: Int)
        /// It was refused and is told so after a pause.
        case refused(HTTPResponse, toHead: Bool)
        /// Its request's body is being read.
        case body
        /// Its request is being answered; what it sends meanwhile is kept for later.
        case answering
        case client
        case echo
        /// Its request is answered with changes, for as long as that lasts; what it sends meanwhile is kept for later.
        case feed(Feed)
        /// Farewell was said; what still comes is not read.
        case ending
    }

    let connection: ConnectionID
    let peer: PeerAddress
    /// Whose channels it may join: of the host it asked for when it became a client.
    var project: ProjectLoop?
    var stage = Stage.request(scanned: 0)
    /// Until its request is whole; then for a refusal.
    var timer: TimerID?
    /// From when its head is read until it is answered.
    var incoming: IncomingRequest?
    var body: HTTPBodyReader?
    /// Client that waits for an operator's answer.
    var waiting: WaitingClient?
    var version = SerializerVersion.v1
    var wantsCompression = false
    /// Of the key it was opened with: the claims of channels that bring none.
    var claims: Claims?
    /// The upgrade's own headers, as policies may see them: the text of a JSON object.
    var headers = "{}"
    /// What the socket's address asked for, for all of its channels.
    var options = ExtensionOptions()
    /// One of its project's users: it has joined a channel once, or asks to.
    var isCounted = false
    var hasJoined = false
    /// What the filters of its channels count.
    var filterParts = 0
    /// What its channels track.
    var presenceBytes = 0
    /// Its filters took too much time: its channels are left out of changes.
    var rest = FilterRest()
    var frames: FrameDecoder?
    var machine: ChannelMachine?
    /// Joins beyond the number of channels that are yet to be refused.
    var surplusJoins = 0
    /// Refused joins that were told of without a pause.
    var promptRefusals: UInt8 = 0
    /// What its client has certainly got, where that is kept for its coming back.
    var receipt = SocketReceipt()
    /// The numbers of its first message and of the highest; 0 for none.
    private(set) var firstRef: UInt32 = 0
    /// Topics that a client that was connected before has joined on this socket.
    var joinedTopics = BoundedMemory<[UInt8], Void>(maximum: Limits.joinedTopics)
    private(set) var lastRef: UInt32 = 0
    /// Channels that ended, and not by a word of the client's: it most often joins again.
    var ended = BoundedMemory<DepartureKey, Channel.Ended>(maximum: Limits.endedChannels)
    /// By which the ledger knows it; 0 until there is something to say of it.
    var ledgerNumber: UInt64 = 0
    /// A name that its address gave the client.
    var clientID: String?
    /// Its socket takes less than it is sent: what the log has for its channels waits there.
    var isSlow = false
    /// Channels that are told first what rows there are, by place, one after the other.
    var snapshots: [UInt32] = []
    /// Its socket is gone, or is about to be, without a word about its channels.
    var hasGone = false
    /// By the slots of the machine's channels: places among the loop's.
    var channels: [UInt32?] = []

    init(_ connection: ConnectionID, from peer: PeerAddress) {
        self.connection = connection
        self.peer = peer
    }

    /// Of its project; nil of whoever only asks for pages.
    var metrics: ProjectMetrics? { project?.metrics }

    /// Clients number their messages; what is no number says nothing. It is as it was sent, most often in quotes.
    func note(ref: RawSpan) {
        guard (1...11).contains(ref.byteCount) else { return }
        var number: UInt32 = 0
        for index in 0..<ref.byteCount {
            // SAFETY: the index lies in the span; any byte is a valid UInt8.
            let byte = unsafe ref.unsafeLoad(fromByteOffset: index, as: UInt8.self)
            if byte == UInt8(ascii: "\""), index == 0 || index == ref.byteCount - 1 { continue }
            let digit = byte &- UInt8(ascii: "0")
            guard digit < 10, number < 100_000_000 else { return }
            number = number * 10 + UInt32(digit)
        }
        guard number > 0 else { return }
        if firstRef == 0 { firstRef = number }
        lastRef = max(lastRef, number)
    }

    func channel(_ id: ChannelID) -> UInt32? {
        Int(id.slot) < channels.count ? channels[Int(id.slot)] : nil
    }

    func set(_ channel: UInt32?, for id: ChannelID) {
        while channels.count <= Int(id.slot) { channels.append(nil) }
        channels[Int(id.slot)] = channel
        while let last = channels.last, last == nil { channels.removeLast() }
    }
}

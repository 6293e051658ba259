import Auth
import Channels
import Delivery
import Diagnostics
import Net
import Protocol
import WebSocket

/// Connection of one client. A connection begins with a request, and may become a WebSocket with channels.
final class Session {
    enum Stage {
        /// The hub reads the next request. `scanned` is the number of bytes already searched for the request's end.
        case request(scanned: Int)
        /// The hub refused the request, and sends the refusal after a pause.
        case refused(HTTPResponse, toHead: Bool)
        /// The hub reads the request's body.
        case body
        /// The hub prepares the answer. Bytes that the client sends meanwhile wait unread.
        case answering
        case client
        case echo
        /// The hub answers the request with changes, for as long as the feed lasts. Bytes that the client sends
        /// meanwhile wait unread.
        case feed(Feed)
        /// The hub has sent its farewell, and ignores further bytes from the client.
        case ending

        /// True if an HTTP answer may be sent now.
        var takesAnswer: Bool {
            switch self {
            case .request, .refused, .body, .answering: true
            case .client, .echo, .feed, .ending: false
            }
        }

        /// True if the connection is a WebSocket that is not closing.
        var isWebSocket: Bool {
            switch self {
            case .client, .echo: true
            case .request, .refused, .body, .answering, .feed, .ending: false
            }
        }
    }

    let connection: ConnectionID
    let peer: PeerAddress
    /// Project whose channels the client may join. The hub sets it from the request's host when the WebSocket or feed
    /// begins.
    var project: ProjectLoop?
    var stage = Stage.request(scanned: 0)
    /// Timer of the current stage: time limit of a request, delay of a refusal, heartbeat of a feed, or time limit for
    /// a client without channels.
    var timer: TimerID?
    /// Request that is being served.
    var request = ServedRequest()
    var terms = SocketTerms()
    var use = SocketUse()
    var frames: FrameDecoder?
    var machine: ChannelMachine?
    /// Part of the log that the client has acknowledged. The hub keeps it only for clients that may resume.
    var receipt = SocketReceipt()
    var refs = MessageRefs()
    var past = SocketPast()
    /// Number of this session in the ledger; 0 until the ledger first needs it.
    var ledgerNumber: UInt64 = 0
    /// True if the client reads more slowly than the hub sends. Its channels' changes then wait in the log.
    var isSlow = false
    /// Places of the channels that wait for a snapshot. The first one is being served, the others follow one by one.
    var snapshots: [UInt32] = []
    /// Places of the channels in the project loop, indexed by the channel machine's slots.
    var channels: [UInt32?] = []

    init(_ connection: ConnectionID, from peer: PeerAddress) {
        self.connection = connection
        self.peer = peer
    }

    /// Metrics of the session's project; nil for requests that need no project.
    var metrics: ProjectMetrics? { project?.metrics }

    func channel(_ id: ChannelID) -> UInt32? {
        Int(id.slot) < channels.count ? channels[Int(id.slot)] : nil
    }

    func set(_ channel: UInt32?, for id: ChannelID) {
        while channels.count <= Int(id.slot) { channels.append(nil) }
        assert(channel == nil || channels[Int(id.slot)] == nil, "a slot has one channel at a time")
        channels[Int(id.slot)] = channel
        while let last = channels.last, last == nil { channels.removeLast() }
    }
}

/// Request that a session serves, from its head until its answer.
struct ServedRequest: ~Copyable {
    /// The parsed head; nil while none is served.
    var incoming: IncomingRequest?
    var body: HTTPBodyReader?
    /// Handle through which a waiting operator request learns that its client has gone.
    var waiting: WaitingClient?
}

/// Terms that the request agreed on for everything that the connection carries afterwards.
struct SocketTerms {
    var version = SerializerVersion.v1
    var wantsCompression = false
    /// Claims of the key that opened the connection. Channels without a token of their own use these claims.
    var claims: Claims?
    /// Headers of the upgrade request that policies may read, as the text of a JSON object.
    var headers = "{}"
    /// Options from the socket's URL, which apply to all of its channels.
    var options = ExtensionOptions()
    /// Name that the client gave itself in the socket's URL (`client_id`).
    var clientID: String?
}

/// Room and time that a socket's channels take together, for the limits per client.
struct SocketUse {
    /// True if the session counts as one of the project's users: it has joined a channel, or is about to.
    var isCounted = false
    var hasJoined = false
    /// Sum of `filterParts` over the session's channels.
    var filterParts = 0
    /// Bytes of presence that the session's channels track.
    var presenceBytes = 0
    /// Pause of the session's filters after they took too much time. During it, channels with filters receive no
    /// changes.
    var rest = FilterRest()
    /// Number of refusals not sent yet for joins beyond the channel limit.
    var surplusJoins = 0
    /// Number of refused joins that were answered without a pause.
    var promptRefusals: UInt8 = 0
}

/// Numbers of a client's messages on one socket.
struct MessageRefs {
    /// Number of the first numbered message; 0 until then.
    private(set) var first: UInt32 = 0
    /// Highest number so far.
    private(set) var last: UInt32 = 0

    /// Records the number of a client's message. A ref that is not a positive number is ignored. The bytes are as
    /// received, most often with quotes.
    mutating func note(_ ref: RawSpan) {
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
        if first == 0 { first = number }
        last = max(last, number)
        assert(first <= last, "the highest number is not below the first")
    }
}

/// Channels that a socket had before, by which a client that goes on is recognized.
struct SocketPast {
    /// Topics joined on this socket by a client that was connected before.
    var joinedTopics = BoundedMemory<[UInt8], Void>(maximum: Limits.joinedTopics)
    /// Channels that ended on this socket without a leave from the client. Clients usually join such a channel again.
    var ended = BoundedMemory<ResumeKey, Channel.Ended>(maximum: Limits.endedChannels)
    /// Reason why the socket has ended, or is about to, as people read it; nil while it is open.
    var end: String?
    var hasGone: Bool { end != nil }
}

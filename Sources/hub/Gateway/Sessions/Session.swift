import Auth
import Channels
import Delivery
import Diagnostics
import Net
import Protocol
import WebSocket

/// Connection of one client. It begins with an HTTP request, and may become a WebSocket with channels.
final class Session {
    /// Stage of the connection.
    enum Stage {
        /// The hub reads the next request. `scanned` bytes have already been searched for the end of the request's
        /// head.
        case request(scanned: Int)
        /// The hub has decided to refuse the request, and will send the refusal after a pause.
        case refused(HTTPResponse, toHead: Bool)
        /// The hub reads the request's body.
        case body
        /// The hub prepares the answer. Further bytes of the client wait until it is sent.
        case answering
        /// The connection is a WebSocket of a client.
        case client
        /// The connection is a WebSocket that returns what the client sends.
        case echo
        /// The hub answers the request with changes while the feed lasts. Further bytes of the client wait.
        case feed(Feed)
        /// An operator's request is answered in parts, for as long as the answer goes on. Bytes that the client sends
        /// meanwhile wait unread.
        case streaming(inChunks: Bool)
        /// The hub has sent its farewell, and ignores further bytes from the client.
        case ending

        /// True if the hub may send an HTTP answer now.
        var takesAnswer: Bool {
            switch self {
            case .request, .refused, .body, .answering: true
            case .client, .echo, .feed, .streaming, .ending: false
            }
        }

        /// True if the connection is a WebSocket that is not closing.
        var isWebSocket: Bool {
            switch self {
            case .client, .echo: true
            case .request, .refused, .body, .answering, .feed, .streaming, .ending: false
            }
        }
    }

    let connection: ConnectionID
    let peer: PeerAddress
    /// Project whose channels the client may join; nil until the WebSocket or feed begins. The request's host
    /// determines it.
    var project: ProjectLoop?
    var stage = Stage.request(scanned: 0)
    /// Timer of the current stage: limit of a request's duration, pause before a refusal, heartbeat of a feed, or limit
    /// for a client without channels.
    var timer: TimerID?
    /// Request that is being served, with its body.
    var request = ServedRequest()
    var terms = SocketTerms()
    var use = SocketUse()
    var frames: FrameDecoder?
    var machine: ChannelMachine?
    /// Acknowledged offset of the client. The hub keeps it only for clients that may resume.
    var receipt = SocketReceipt()
    var refs = MessageRefs()
    var past = SocketPast()
    /// Number of the session in the ledger; 0 until it is needed.
    var ledgerNumber: UInt64 = 0
    /// True if the client reads more slowly than the hub sends. The changes of its channels then stay in the log.
    var isSlow = false
    /// Places (indices) of the channels that wait for a snapshot. The first one receives its rows, then the next one
    /// begins.
    var snapshots: [UInt32] = []
    /// Places (indices) of the channels in `ProjectLoop.channels`, indexed by the channel machine's slots.
    var channels: [UInt32?] = []

    init(_ connection: ConnectionID, from peer: PeerAddress) {
        self.connection = connection
        self.peer = peer
    }

    /// Metrics of the session's project; nil if it has none.
    var metrics: ProjectMetrics? { project?.metrics }

    /// Returns the place of a channel in `ProjectLoop.channels`; nil if there is none.
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

/// Request that a session serves, from its head to its answer.
struct ServedRequest: ~Copyable {
    /// Parsed head; nil while the session serves no request.
    var incoming: IncomingRequest?
    var body: HTTPBodyReader?
    /// Handle by which a waiting operator request learns that its client has disconnected.
    var waiting: WaitingClient?
}

/// Properties of the request that apply to everything that the connection carries later.
struct SocketTerms {
    var version = SerializerVersion.v1
    var wantsCompression = false
    /// Claims of the key that opened the connection. A channel without its own token uses them.
    var claims: Claims?
    /// Headers of the upgrade request that policies may read, as the text of a JSON object.
    var headers = "{}"
    /// Options from the socket's URL, which apply to all of its channels.
    var options = ExtensionOptions()
    /// Name that the client gave in the socket's URL (`client_id`); nil if it gave none.
    var clientID: String?
}

/// Resources that the channels of a socket use together, for the limits of each client.
struct SocketUse {
    /// True if the session counts as one of the project's users: it has joined a channel or is joining one.
    var isCounted = false
    var hasJoined = false
    /// Number of conditions and list values in the filters of all channels of the socket.
    var filterParts = 0
    /// Number of bytes of presence that all channels of the socket track.
    var presenceBytes = 0
    /// Pause of the session's filters after they took too much work. Until it ends, channels with filters receive no
    /// changes.
    var rest = FilterRest()
    /// Number of refusals still to be sent for joins beyond the channel limit.
    var surplusJoins = 0
    /// Number of refused joins that the hub answered without a pause.
    var promptRefusals: UInt8 = 0
}

/// Numbers of a client's messages on one socket, from their refs.
struct MessageRefs {
    /// Number of the first numbered message; 0 if there was none.
    private(set) var first: UInt32 = 0
    /// Highest message number so far; 0 if there was none.
    private(set) var last: UInt32 = 0

    /// Records the ref of a client's message. A ref that is not a positive number is ignored. The bytes are as
    /// received, mostly with quotes.
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

/// Earlier channels of a socket, by which the hub recognizes a client that joins again.
struct SocketPast {
    /// Topics for which the hub, on this socket, has recognized the returning channel or has told the client that its
    /// past is unknown.
    var topicsWithSettledPast = BoundedMemory<[UInt8], Void>(maximum: Limits.joinedTopics)
    /// Channels that ended on this socket without a leave from the client, which usually joins them again.
    var ended = BoundedMemory<ResumeKey, Channel.Ended>(maximum: Limits.endedChannels)
    /// Reason why the socket has ended or is ending, as a text for the ledger's readers; nil while it is open.
    var end: String?
    /// True if the socket has ended or is ending.
    var hasGone: Bool { end != nil }
}

import Channels
import Delivery
import Diagnostics
import Peers
import Synchronization

/// Mailboxes of a project's loops, with the number of bytes of broadcasts and presence changes that wait in each.
struct ProjectMail: Sendable {
    /// Mailboxes by loop number.
    let mailboxes: [Mailbox<Mail>]
    private let bytes: [MailedBytes]
    private let metrics: ProjectMetrics
    /// Exchange with the other nodes of a cluster; nil for a hub on its own.
    private let peers: PeerTalk?

    init(loops: Int, _ metrics: ProjectMetrics, peers: PeerTalk?) {
        self.peers = peers
        mailboxes = (0..<loops).map { _ in Mailbox<Mail>() }
        bytes = (0..<loops).map { _ in MailedBytes() }
        self.metrics = metrics
    }

    func post(_ mail: Mail) {
        for mailbox in mailboxes { mailbox.post(mail) }
    }

    /// True if other loops or nodes must hear what one loop's clients say.
    var hasOthers: Bool { mailboxes.count > 1 || peers != nil }

    /// Passes on to the loops what other nodes have sent, as long as the exchange runs.
    ///
    /// - Parameter records: records of clients that the nodes exchange; nil if none are kept.
    func listen(_ records: PeerRecords?) throws {
        try peers?.start(records) { news in
            switch news {
            case .broadcasts(let batch): postHere(batch, except: nil)
            case .broadcastsLost: post(.broadcastsLost)
            case .presence(let changes): postHere(changes, except: nil)
            }
        }
    }

    func stopListening() { peers?.stop() }

    /// Posts broadcasts to all loops except the sender, and sends them to the other nodes. A loop that is too far behind does not receive them, but a
    /// letter that broadcasts were lost.
    func post(_ batch: TurnBroadcasts, from loop: Int) {
        postHere(batch, except: loop)
        peers?.send(batch)
    }

    private func postHere(_ batch: TurnBroadcasts, except loop: Int?) {
        for index in mailboxes.indices where index != loop {
            guard bytes[index].add(batch.byteCount) else {
                metrics.drops[.backlog].add(batch.entries.count)
                mailboxes[index].post(.broadcastsLost)
                continue
            }
            mailboxes[index].post(.broadcasts(batch))
        }
    }

    func hasTaken(_ batch: TurnBroadcasts, on loop: Int) { bytes[loop].subtract(batch.byteCount) }

    /// Posts presence changes to all loops except the sender. They are never dropped. Instead, clients cannot track
    /// presence while some loop is too far behind.
    func post(_ changes: [PresenceChange], from loop: Int) {
        postHere(changes, except: loop)
        peers?.send(changes)
    }

    private func postHere(_ changes: [PresenceChange], except loop: Int?) {
        let byteCount = changes.reduce(0) { $0 + $1.byteCount }
        for index in mailboxes.indices where index != loop {
            bytes[index].addAnyway(byteCount)
            mailboxes[index].post(.presence(changes))
        }
    }

    func hasTaken(_ changes: [PresenceChange], on loop: Int) {
        bytes[loop].subtract(changes.reduce(0) { $0 + $1.byteCount })
    }

    /// True if mail for some loop waits with more bytes than allowed.
    var isBehind: Bool { bytes.contains { $0.isFull } }
}

/// Number of bytes that wait in one mailbox.
private final class MailedBytes: Sendable {
    private let bytes = Atomic<Int>(0)

    /// Adds bytes to the count. Returns false and adds nothing if the mailbox is full.
    func add(_ count: Int) -> Bool {
        guard !isFull else { return false }
        addAnyway(count)
        return true
    }

    func addAnyway(_ count: Int) { bytes.wrappingAdd(count, ordering: .relaxed) }

    var isFull: Bool { bytes.load(ordering: .relaxed) > Limits.maximumMailedBytes }

    func subtract(_ count: Int) {
        let left = bytes.wrappingSubtract(count, ordering: .relaxed).newValue
        assert(left >= 0, "a loop takes only what was mailed")
    }
}

import Channels
import EventLog

/// Clients of the other nodes of a cluster, who may come to this one: where they stand, as their nodes have told.
struct PeerClients: Sendable {
    /// Client of another node that has come to this one.
    struct Claim: Sendable {
        /// Number of the node's name.
        var home: UInt64
        var entry: ClaimedEntry
        /// Time in seconds at which the claim is forgotten; zero until it is sent.
        var expires: Int64 = 0
    }

    private struct Node {
        var standings = PeerStandings()
        var home: UInt64 = 0
        /// Time in seconds at which what is known of a silent node is forgotten; nil while the node is heard.
        var forgetAt: Int64?
        /// True if the node has started again and tells of its clients under another number.
        var hasReturned = false
    }

    private var nodes: [UInt64: Node] = [:]
    private var claims: [Claim] = []
    /// Claims that were sent. A node that was down when one was sent has the clients again when it starts, and hears of
    /// the claim then.
    private var sent: [Claim] = []

    /// Maximum number of claims that are remembered. What a node does not hear of, it only repeats to a client.
    private static let maximumClaims = 100_000

    /// Takes what a node has told. Returns false if it is invalid.
    ///
    /// - Parameter moment: time in seconds at which clients are forgotten that the node itself no longer knows since it
    ///   started again.
    mutating func learn(
        _ node: UInt64, of home: UInt64, _ content: RawSpan, forgettingAt moment: Int64
    ) -> Bool {
        let isNew = nodes[node] == nil
        nodes[node, default: Node()].forgetAt = nil
        nodes[node]?.home = home
        guard nodes[node]?.standings.take(content) ?? false else { return false }
        if isNew {
            claims += sent.filter { $0.home == home }
            sent.removeAll { $0.home == home }
        }
        // The node has started again. What it had not written to its disk is known by what it told before.
        for (former, known) in nodes where former != node && known.home == home {
            if let newer = nodes[node]?.standings { nodes[former]?.standings.remove(knownBy: newer) }
            if known.forgetAt == nil { nodes[former]?.forgetAt = moment }
            nodes[former]?.hasReturned = true
        }
        for claim in claims where claim.home == home { forget(claim.entry, of: home) }
        return true
    }

    /// Forgets a client of a node, because another node serves it.
    mutating func forget(_ entry: ClaimedEntry, of home: UInt64) {
        for (number, node) in nodes where node.home == home { nodes[number]?.standings.remove(entry) }
    }

    /// Records that a node is silent. Its clients may come here for their grace period.
    mutating func lose(_ node: UInt64, until moment: Int64) { nodes[node]?.forgetAt = moment }

    mutating func expire(now: Int64) {
        nodes = nodes.filter { ($0.value.forgetAt ?? .max) > now }
        if let first = sent.first, first.expires <= now { sent.removeAll { $0.expires <= now } }
    }

    /// Finds where a joining client stood on another node. It is the lowest position of all clients that it may be.
    ///
    /// - Parameter key: returns the client's key as hashed with a node's secret.
    mutating func find(
        _ firstRef: UInt32, key: (ResumeRegistry.Secret) -> ResumeKey?
    ) -> ResumeRegistry.Stand? {
        var found: ResumeRegistry.Stand?
        var isOnlyHere = true
        for (number, node) in nodes {
            guard let key = node.standings.secret.flatMap(key) else { continue }
            for candidate in node.standings.candidates(key, firstRef: firstRef) {
                let isOfAnotherLog = found.map { $0.mark.epoch != candidate.mark.epoch } ?? false
                let least = found.map { $0.mark.offset < candidate.mark.offset ? $0.mark : candidate.mark }
                found = (
                    least ?? candidate.mark, candidate.owesLoss || found?.owesLoss == true || isOfAnotherLog
                )
                if candidate.isGone || node.forgetAt != nil { isOnlyHere = false }
                let entry = ClaimedEntry(place: candidate.place, key: key, firstRef: firstRef)
                claims.append(Claim(home: node.home, entry: entry))
                nodes[number]?.standings.remove(entry)
            }
        }
        // A client that seems to be connected elsewhere may be another one of the same login, and what a node that is
        // lost had not told yet may be the one that joins.
        if isOnlyHere, nodes.values.contains(where: { $0.forgetAt != nil && !$0.hasReturned }) {
            found?.owesLoss = true
        }
        return found
    }

    /// Returns the claims that have not been sent. They are remembered until then.
    mutating func takeClaims(until expires: Int64) -> [Claim] {
        let taken = claims
        claims = []
        for var claim in taken where sent.count < Self.maximumClaims {
            claim.expires = expires
            sent.append(claim)
        }
        return taken
    }
}

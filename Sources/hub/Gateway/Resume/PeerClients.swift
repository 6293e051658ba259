import Channels
import EventLog

/// Clients of the other nodes of a cluster, who may come to this one: where they stand, as their nodes have told.
struct PeerClients: Sendable {
    /// Client of another node that has come to this one.
    struct Claim: Sendable {
        var node: UInt64
        var place: UInt32
        var key: ResumeKey
    }

    private struct Node {
        var standings = PeerStandings()
        /// Time in seconds at which what is known of a silent node is forgotten; nil while the node is heard.
        var forgetAt: Int64?
    }

    private var nodes: [UInt64: Node] = [:]
    private var claims: [Claim] = []

    mutating func learn(_ node: UInt64, _ content: RawSpan) -> Bool {
        nodes[node, default: Node()].forgetAt = nil
        return nodes[node]?.standings.take(content) ?? false
    }

    /// Records that a node is silent. Its clients may come here for their grace period.
    mutating func lose(_ node: UInt64, until moment: Int64) { nodes[node]?.forgetAt = moment }

    mutating func expire(now: Int64) {
        nodes = nodes.filter { ($0.value.forgetAt ?? .max) > now }
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
                claims.append(Claim(node: number, place: candidate.place, key: key))
                nodes[number]?.standings.remove(candidate.place)
            }
        }
        // A client that seems to be connected elsewhere may be another one of the same login, and what a node that is
        // lost had not told yet may be the one that joins.
        if isOnlyHere, nodes.values.contains(where: { $0.forgetAt != nil }) { found?.owesLoss = true }
        return found
    }

    mutating func takeClaims() -> [Claim] {
        defer { claims = [] }
        return claims
    }
}

import Catalog
import Policy
import Synchronization

/// Recorder of the parts of each policy's condition, for explanations. Records while the catalog compiles the policy,
/// because only then is the meaning of names known.
final class PartRecorder: Sendable {
    private struct Key: Hashable {
        var table: UInt32
        var text: String
    }

    private static let limit = 120
    private let parts = Mutex<[Key: [PolicyPart]]>([:])

    var compiling: PolicyCompiling {
        var compiling = PolicyCompiling.real
        let compile = compiling.compile
        compiling.compile = { [self] catalog, text, table in
            let found = PolicyCompiler(catalog).parts(of: text, on: table, limit: PartRecorder.limit)
            parts.withLock { $0[Key(table: table.oid, text: text)] = found }
            return compile(catalog, text, table)
        }
        return compiling
    }

    /// True if the hub can evaluate every part of the policy's text without PostgreSQL.
    func isDecided(_ text: String, on table: UInt32) -> Bool {
        let found = parts.withLock { $0[Key(table: table, text: text)] }
        return found?.first.map { part in !part.term.contains { $0 == .undecided } } ?? false
    }

    /// Returns the tables that the policy reads, and whose rows would be memberships if the hub followed these tables.
    func membershipTables(of text: String, on table: UInt32) -> Set<UInt32> {
        var tables: Set<UInt32> = []
        let found = parts.withLock { $0[Key(table: table, text: text)] }
        found?.first?.term.visit { if case .member(let membership, _) = $0 { tables.insert(membership.table) } }
        return tables
    }

    /// Returns the smallest parts of a policy that only PostgreSQL can evaluate, in the policy's own text.
    func undecided(of policy: PolicyBinding.Part, on table: UInt32) -> [String] {
        let parts = parts(of: policy, on: table)
        return parts.indices.filter { index in
            let inside = parts[(index + 1)...].prefix { $0.depth > parts[index].depth }
            return parts[index].isUndecided && !inside.contains(where: \.isUndecided)
        }.map { parts[$0].text }
    }

    /// Returns the parts of the policy's condition; the first is the policy itself. If the binding leaves something to
    /// PostgreSQL, so do the parts.
    func parts(of policy: PolicyBinding.Part, on table: UInt32) -> [PolicyPart] {
        var found = parts.withLock { $0[Key(table: table, text: policy.text)] } ?? []
        if found.isEmpty {
            found = [
                PolicyPart(depth: 0, text: policy.text, sql: policy.text, isCondition: true, term: .undecided)
            ]
        }
        for index in found.indices {
            found[index].term = policy.term == .undecided ? .undecided : found[index].term.narrowed(as: policy.term)
        }
        found[0].term = policy.term
        return found
    }
}

extension Term {
    /// Returns the term with the memberships of the whole policy. These include the policies of the membership tables.
    fileprivate func narrowed(as whole: Term) -> Term {
        var known: [Membership] = []
        whole.visit { if case .member(let membership, _) = $0 { known.append(membership) } }
        return replacingMembers { membership, key in
            let found = known.first {
                $0.table == membership.table && $0.keySlot == membership.keySlot && $0.reader == membership.reader
                    && $0.fillSQL == membership.fillSQL
            }
            return found.map { .member($0, key: key) } ?? .undecided
        }
    }
}

extension PolicyPart {
    fileprivate var isUndecided: Bool { term.contains { $0 == .undecided } }
}

import Catalog
import Policy
import Synchronization

/// Recorder of the parts of each policy. Records while the catalog compiles the policy, when the meaning of names is
/// known.
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

    /// True if no part of the policy's text is left to PostgreSQL.
    func isDecided(_ text: String, on table: UInt32) -> Bool {
        let found = parts.withLock { $0[Key(table: table, text: text)] }
        return found?.first.map { part in !part.term.contains { $0 == .undecided } } ?? false
    }

    /// Returns the tables whose rows would give memberships if the hub followed these tables.
    func membershipTables(of text: String, on table: UInt32) -> Set<UInt32> {
        var tables: Set<UInt32> = []
        let found = parts.withLock { $0[Key(table: table, text: text)] }
        found?.first?.term.visit { if case .member(let membership, _) = $0 { tables.insert(membership.table) } }
        return tables
    }

    /// Returns the smallest parts of a policy that are left to PostgreSQL, as written.
    func undecided(of policy: PolicyBinding.Part, on table: UInt32) -> [String] {
        let parts = parts(of: policy, on: table)
        return parts.indices.filter { index in
            let inside = parts[(index + 1)...].prefix { $0.depth > parts[index].depth }
            return parts[index].isUndecided && !inside.contains(where: \.isUndecided)
        }.map { parts[$0].text }
    }

    /// Returns the policy's parts, the policy itself first. Everything that the binding leaves to PostgreSQL is left to
    /// PostgreSQL in the parts too.
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
    /// Returns the term with the memberships that the whole policy has, which include the policies of their tables.
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

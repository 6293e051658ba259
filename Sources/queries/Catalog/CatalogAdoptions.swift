import Synchronization

/// Record of the catalog version that each socket loop uses, and of the log offset from which it uses the version. Each
/// loop learns of a new version separately.
final class CatalogAdoptions: Sendable {
    enum Standing: Equatable {
        /// No socket loop uses any version of the catalog yet.
        case unheard
        /// Version that not all socket loops use yet.
        case underWay
        /// All loops use the version from offset `last` on. From offset `first` to `last`, some loops used it, or used
        /// a version that has no record in the log.
        case whole(first: UInt64, last: UInt64)
    }

    private struct State {
        var loops: [Int: (version: UInt64, offset: UInt64)] = [:]
        var count = 0
        /// Lowest log offset at which a socket loop switched to a catalog version that has no record in the log yet.
        var first: UInt64?
        /// Newest catalog version that decides differently about clients from the version before it.
        var step: UInt64?

        /// Returns the oldest version that is known to decide like this one. A version before `step` is returned
        /// unchanged.
        func judging(as version: UInt64) -> UInt64 {
            guard let step, version >= step else { return version }
            return step
        }
    }

    private let state = Mutex(State())

    /// Records that this version decides differently from the version before it. The caller records it before any loop
    /// uses the version.
    func step(at version: UInt64) {
        state.withLock { state in
            assert(state.step.map { $0 < version } ?? true, "versions only grow")
            state.step = version
        }
    }

    /// Records that a loop uses this version from offset `last` on, and perhaps already from `first` on.
    ///
    /// - Parameter count: the number of socket loops.
    func adopt(_ version: UInt64, from first: UInt64, to last: UInt64, by loop: Int, of count: Int) {
        state.withLock { state in
            let version = state.judging(as: version)
            guard state.loops[loop].map({ $0.version < version }) ?? true else { return }
            state.loops[loop] = (version, last)
            state.count = count
            state.first = min(state.first ?? first, first)
        }
    }

    /// Returns which socket loops use this version, and from which log offset.
    func standing(of version: UInt64) -> Standing {
        state.withLock { state in
            let version = state.judging(as: version)
            guard !state.loops.isEmpty else { return .unheard }
            guard state.loops.count == state.count, state.loops.values.allSatisfy({ $0.version == version }) else {
                return .underWay
            }
            let last = state.loops.values.map(\.offset).max() ?? 0
            return .whole(first: min(state.first ?? last, last), last: last)
        }
    }

    /// True if all loops use this version and the log has a record of it.
    func areNoted(of version: UInt64) -> Bool {
        state.withLock { state in
            let version = state.judging(as: version)
            return state.first == nil && state.loops.count == state.count
                && state.loops.values.allSatisfy { $0.version == version }
        }
    }

    /// Records that the log now has a record of the version that all loops use.
    func noted() { state.withLock { $0.first = nil } }
}

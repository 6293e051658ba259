import Synchronization

/// Where in the log those who judge by the catalog began to judge by what it said: each loop hears of a version on its own.
final class CatalogAdoptions: Sendable {
    enum Standing: Equatable {
        /// Nobody judges by it.
        case unheard
        /// Some judge by an older version still.
        case underWay
        /// From `last` on all judge by it; between the two some did so, or judged by a version that was not noted.
        case whole(first: UInt64, last: UInt64)
    }

    private struct State {
        var loops: [Int: (version: UInt64, offset: UInt64)] = [:]
        var count = 0
        /// Where the first of them took a version that was not noted.
        var first: UInt64?
        /// The newest version by which others are judged than by the one before.
        var step: UInt64?

        /// The version that first judged as this one does; of what is older than the step nothing is known.
        func judging(as version: UInt64) -> UInt64 {
            guard let step, version >= step else { return version }
            return step
        }
    }

    private let state = Mutex(State())

    /// By this version, which nobody has heard of yet, others are judged than by the one before.
    func step(at version: UInt64) {
        state.withLock { state in
            assert(state.step.map { $0 < version } ?? true, "versions only grow")
            state.step = version
        }
    }

    func adopt(_ version: UInt64, from first: UInt64, to last: UInt64, by loop: Int, of count: Int) {
        state.withLock { state in
            let version = state.judging(as: version)
            guard state.loops[loop].map({ $0.version < version }) ?? true else { return }
            state.loops[loop] = (version, last)
            state.count = count
            state.first = min(state.first ?? first, first)
        }
    }

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

    /// All of them judge by this version, which is noted.
    func areNoted(of version: UInt64) -> Bool {
        state.withLock { state in
            let version = state.judging(as: version)
            return state.first == nil && state.loops.count == state.count
                && state.loops.values.allSatisfy { $0.version == version }
        }
    }

    /// What all of them judge by is noted.
    func noted() { state.withLock { $0.first = nil } }
}

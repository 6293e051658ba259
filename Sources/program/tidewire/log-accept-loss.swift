import Bytes
import Change
import Console
import EventLog
import History
import Settings
import System

/// Command `tidewire log accept-loss`: gives up the unreadable rest of a damaged log, so that the hub can continue.
struct LogAcceptLossCommand: Command {
    let name = "accept-loss"
    let summary = "Continue with a damaged event log, and give up the unreadable part."
    let discussion = """
        For a log that 'tidewire log verify' calls damaged, if you have no better copy. Verifies every checksum, shows \
        what would be lost, asks, and then gives it up. The hub must not run meanwhile.

        Damage in a sealed segment: the command moves that segment and all older ones aside, and the log begins after \
        them. The hub tells clients that ask for earlier changes that these are older than what it keeps, and they \
        fetch.

        Damage in the segment that was written last: the command cuts it off after the last whole transaction before \
        the damage. A gap (log_damaged) marks the place and a new epoch begins, so every client with a position in the \
        old epoch fetches. When the hub starts, the database sends again what it still has of the lost part. If it no \
        longer has all of it, the hub records that gap too.

        The command deletes nothing: it moves what it gives up to DIR.damaged-TIME beside the log. There 'tail', 'row' \
        and 'log export' with --log read as much of it as is readable.
        """
    let options: [Option] = [.acceptance, .withoutProgress, .log, .project]
    let optionGroups: [OptionGroup] = [.dataDirectory]
    let examples = [
        Example("tidewire log accept-loss", "See what would be lost, and decide:"),
        Example("tidewire log accept-loss --yes --log /var/lib/tidewire/log", "Without asking, in a script:"),
    ]
    let exitCodes: [ExitCode] = [.notFound, .unreachable]

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        let path = try arguments.logDirectory(terminal)
        return try LogAccess.explained {
            let directory = try LogAccess.openDirectory(path)
            let salvage = try lock(directory, Progress(terminal, isQuiet: arguments.has(.withoutProgress)))
            guard let loss = salvage.loss else {
                terminal.complain("the event log \(path) is not damaged: there is nothing to give up")
                return .notFound
            }
            for line in loss.lines { try terminal.print(line) }
            guard try arguments.has(.acceptance) || agrees(terminal) else {
                terminal.complain("nothing was changed; --yes gives it up without asking")
                return .notFound
            }
            let aside = try perform(salvage, in: directory)
            try terminal.print("done; what was given up is in \(aside)")
            return .ok
        }
    }

    private func lock(_ directory: DiskDirectory, _ progress: Progress) throws -> EventLogSalvage {
        defer { progress.clear() }
        do throws(EventLogError) {
            return try EventLogSalvage(directory) { done, all in
                progress.note("reading checksums of \(directory.path): \(done) of \(all) segments")
            }
        } catch {
            guard case .lockedElsewhere = error else { throw error }
            throw CommandFailure(
                .notFound, "\(error)", hint: "Stop the hub first: it must not write to the log meanwhile.")
        }
    }

    /// Asks the operator whether to accept the loss. Returns the answer.
    private func agrees(_ terminal: Terminal) throws -> Bool {
        try terminal.flush()
        return ["y", "yes"].contains(terminal.ask("Give this up? [y/N] ")?.lowercased())
    }

    private func perform(_ salvage: EventLogSalvage, in directory: DiskDirectory) throws -> String {
        let now = Clock.unixMicroseconds()
        let digits = TimeText.write(now, digits: 0).filter { $0.isNumber || $0 == "T" }
        let path = directory.path + ".damaged-" + digits + "Z"
        do {
            let aside = try DiskDirectory(path, creating: true)
            try salvage.perform(options: EventLogOptions(source: 0), gap: Self.gap) { (name) throws(SystemError) in
                try directory.move(name, into: aside)
            }
            try aside.sync()
        } catch let error as SystemError {
            throw CommandFailure(.unreachable, "\(error)", hint: error.advice)
        }
        return path
    }

    /// Returns the log entry of the gap that replaces the lost part, from this LSN on. The hub sets the gap's end when
    /// it starts, because only the database knows that position.
    private static func gap(from lsn: UInt64) -> [UInt8] {
        var payload = ByteWriter()
        GapCodec.encode(Gap(reason: .logDamaged, from: LSN(lsn), to: LSN(lsn)), to: &payload)
        return payload.bytes.copied()
    }
}

extension Option {
    fileprivate static let acceptance = Option.flag("yes", "Give it up without asking.")
}

extension EventLogLoss {
    /// Sentences about the files and data that accepting the loss gives up, for the operator who decides.
    fileprivate var lines: [String] {
        var lines: [String] = []
        for report in setAside {
            let held = report.summary.map { "@\($0.firstOffset) … @\($0.endOffset)" } ?? "unreadable"
            let damage = report.problems.filter(\.isDamage).map(\.words).joined(separator: "; ")
            lines.append("move aside \(report.path) (\(held))\(damage.isEmpty ? "" : ": \(damage)")")
        }
        if let cut {
            let damage = cut.problems.filter(\.isDamage).map(\.words).joined(separator: "; ")
            let end = cut.summary.map { "after @\($0.endOffset)" } ?? "at its beginning"
            lines.append("cut \(cut.path) \(end): \(damage)")
            let slash = cut.path.lastIndex(of: "/").map { cut.path.index(after: $0) } ?? cut.path.startIndex
            let file = try? DiskDirectory(Directories.parent(of: cut.path)).open(
                String(cut.path[slash...]), for: .reading)
            let kept = cut.summary?.bytes ?? 0
            let lost = ((try? file?.size()) ?? 0).subtractingReportingOverflow(kept)
            if !lost.overflow, lost.partialValue > 0 {
                lines.append(
                    "all later changes of the segment are lost, also undamaged ones: \(SizeText.write(Int64(clamping: lost.partialValue))) "
                        + "are lost, \(SizeText.write(Int64(clamping: kept))) stay")
            }
            lines.append("a gap (log_damaged) and a new epoch follow; clients fetch again")
        }
        if let oldestOffset {
            lines.append("the log will begin at @\(oldestOffset)")
        } else {
            lines.append("nothing of the log will be left; the hub's next start creates a new one")
        }
        return lines
    }
}

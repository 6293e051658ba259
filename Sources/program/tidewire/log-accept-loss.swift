import Bytes
import Change
import Console
import EventLog
import History
import Settings
import System

/// Command `tidewire log accept-loss`.
struct LogAcceptLossCommand: Command {
    let name = "accept-loss"
    let summary = "Go on with a damaged event log, giving up what cannot be read."
    let discussion = """
        For a log that 'tidewire log verify' calls damaged and of which there is no better copy. Reads every checksum, \
        shows what would be lost, asks, and does it. The hub must not run meanwhile.

        Damage in a sealed segment: it and all older segments are set aside, and the log begins behind them. Clients that \
        ask for what was before are told that it is older than what is kept, and fetch.

        Damage in the segment that was written last: it is cut behind the last whole transaction before the damage. A gap \
        (log_damaged) marks the place and a new epoch begins, so every client that was there fetches. What the database \
        still has of the lost part it sends again when the hub starts; if it has not, the hub marks that, too.

        Nothing is deleted: what goes is moved to DIR.damaged-TIME beside the log, where 'tail', 'row' and 'log export' \
        with --log read it as far as it can be read.
        """
    let options: [Option] = [.acceptance, .withoutProgress, .log, .project]
    let optionGroups: [OptionGroup] = [.dataDirectory]
    let examples = [
        Example("tidewire log accept-loss", "See what would be lost, and decide:"),
        Example("tidewire log accept-loss --yes --log /var/lib/tidewire/log", "In a script that has decided:"),
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
                terminal.complain("nothing was changed; --yes does it without asking")
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
            throw CommandFailure(.notFound, "\(error)", hint: "Stop the hub first: it must not write meanwhile.")
        }
    }

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
            throw CommandFailure(.unreachable, "\(error)")
        }
        return path
    }

    /// Returns the entry for the gap. Its end is filled in when the hub starts, because only the database knows it.
    private static func gap(from lsn: UInt64) -> [UInt8] {
        var payload = ByteWriter()
        GapCodec.encode(Gap(reason: .logDamaged, from: LSN(lsn), to: LSN(lsn)), to: &payload)
        return payload.bytes.copied()
    }
}

extension Option {
    fileprivate static let acceptance = Option.flag("yes", "Do it without asking.")
}

extension EventLogLoss {
    /// Consequences in words, for the operator who decides.
    fileprivate var lines: [String] {
        var lines: [String] = []
        for report in setAside {
            let held = report.summary.map { "@\($0.firstOffset) … @\($0.endOffset)" } ?? "unreadable"
            let damage = report.problems.filter(\.isDamage).map(\.words).joined(separator: "; ")
            lines.append("set aside \(report.path) (\(held))\(damage.isEmpty ? "" : ": \(damage)")")
        }
        if let cut {
            let damage = cut.problems.filter(\.isDamage).map(\.words).joined(separator: "; ")
            let end = cut.summary.map { "behind @\($0.endOffset)" } ?? "at its beginning"
            lines.append("cut \(cut.path) \(end): \(damage)")
            let slash = cut.path.lastIndex(of: "/").map { cut.path.index(after: $0) } ?? cut.path.startIndex
            let file = try? DiskDirectory(Directories.parent(of: cut.path)).open(
                String(cut.path[slash...]), for: .reading)
            let kept = cut.summary?.bytes ?? 0
            let lost = ((try? file?.size()) ?? 0).subtractingReportingOverflow(kept)
            if !lost.overflow, lost.partialValue > 0 {
                lines.append(
                    "all changes behind that are lost, whole ones too: \(SizeText.write(Int64(clamping: lost.partialValue))) "
                        + "of the segment; \(SizeText.write(Int64(clamping: kept))) stay")
            }
            lines.append("a gap (log_damaged) and a new epoch follow; clients fetch again")
        }
        if let oldestOffset {
            lines.append("the log begins at @\(oldestOffset) then")
        } else {
            lines.append("nothing of the log is left then; the hub's next start makes a new one")
        }
        return lines
    }
}
